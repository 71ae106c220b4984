package transport

import "testing"

func TestAccess_SaysWhatItIs(t *testing.T) {
	for a, want := range map[Access]string{
		0:                         "none",
		LocalWrite:                "LocalWrite",
		RemoteRead | RemoteAtomic: "RemoteRead|RemoteAtomic",
		LocalWrite | RemoteWrite | BindWindow | 1<<7: "LocalWrite|RemoteWrite|BindWindow|0x80",
	} {
		if got := a.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(a), got, want)
		}
	}
}
