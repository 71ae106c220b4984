package transport

import "testing"

func TestAccess_SaysWhatItIs(t *testing.T) {
	for a, want := range map[Access]string{
		0:                         "none",
		LocalWrite:                "LocalWrite",
		RemoteRead | RemoteAtomic: "RemoteRead|RemoteAtomic",
		LocalWrite | RemoteWrite | Unchanging | Mappable | 1<<15: "LocalWrite|RemoteWrite|Unchanging|Mappable|0x8000",
	} {
		if got := a.String(); got != want {
			t.Errorf("%d is %q, want %q", uint16(a), got, want)
		}
	}
}
