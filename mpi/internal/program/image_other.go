//go:build !(linux && (amd64 || arm64))

package program

import (
	"fmt"
	"runtime"
)

func image() (code, data []segment, err error) {
	return nil, nil, fmt.Errorf("its machine code is not understood on %s/%s", runtime.GOOS, runtime.GOARCH)
}
