package wireup

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
)

// secretSize is the length of a job's secret.
const secretSize = 32

// keyValues is the launcher's key-value space: a *pmi.Client.
type keyValues interface {
	Rank() int
	Put(ctx context.Context, key, value string) error
	Get(ctx context.Context, key string) (string, error)
	Barrier(ctx context.Context) error
	OnThisMachine() bool
}

// given is the secret that this process has before it hears from other ranks, and where that comes from.
type given struct {
	from   source
	secret [secretSize]byte
	file   string // its name, if it comes from one
}

// source is where a secret comes from.
type source uint8

const (
	fromRank0 source = iota // none is given: rank 0 makes one, and the launcher distributes it
	fromPipe                // from weft's own launcher, which gives all ranks the same
	fromFile                // from the user, who must give all ranks the same
)

// givenSecret must be called before any PMI request: some launchers kill all ranks if a rank exits after its
// first request, including the rank that is about to print the error.
func givenSecret(set setting.Values) (g given, err error) {
	pipe, err := inherited.Take(inherited.Secret)
	if err != nil {
		return g, fmt.Errorf("job's secret from the launcher: %w", err)
	}
	if pipe >= 0 {
		g.from = fromPipe
		g.secret, err = readPipe(pipe)
	} else if file := set.Of(setting.SecretFile).String(); file != "" {
		g.from, g.file = fromFile, file
		if g.secret, err = readFile(file); err != nil {
			err = fmt.Errorf("%s=%s: %w", setting.SecretFile.Name, file, err)
		}
	}
	return g, err
}

// secretKey is the key of the secret that rank 0 has made, in hexadecimal, or of the mark of the one in its
// file.
const secretKey = "weft-secret"

const fileMark = "file-"

// agree makes all ranks of a job use one secret. A rank that has it from a file checks that rank 0 has the
// same: then only a mark of the secret, which does not reveal it, passes through the launcher.
func agree(ctx context.Context, kv keyValues, g given) ([secretSize]byte, error) {
	secret, isGiven := g.secret, g.from == fromFile
	if g.from == fromPipe {
		return secret, nil
	}
	// The launcher protects what it forwards between hosts as well as it can. A connection to the launcher
	// over a network is not protected.
	if !isGiven && !kv.OnThisMachine() {
		return secret, fmt.Errorf("the launcher is reached over the network (PMI_PORT), where others "+
			"could read the job's secret: "+
			"have it in a file on every host that only you can read (head -c 32 /dev/urandom > FILE; "+
			"chmod 600 FILE) and set %s=FILE, "+
			"or use a launcher that hands its ranks a descriptor (PMI_FD)", setting.SecretFile.Name)
	}
	if kv.Rank() == 0 {
		value := fileMark + mark(secret)
		if !isGiven {
			rand.Read(secret[:])
			value = hex.EncodeToString(secret[:])
		}
		if err := kv.Put(ctx, secretKey, value); err != nil {
			return secret, err
		}
	}
	if err := kv.Barrier(ctx); err != nil || kv.Rank() == 0 {
		return secret, err
	}
	value, err := kv.Get(ctx, secretKey)
	switch {
	case errors.Is(err, pmi.ErrNotFound):
		return secret, errors.New("rank 0 has published no secret: was it started in another way, or " +
			"with another version of weft?")
	case err != nil:
		return secret, err
	}
	theirs, isFile := strings.CutPrefix(value, fileMark)
	switch {
	case isFile && !isGiven:
		return secret, fmt.Errorf("rank 0 has the job's secret from a file, and here %[1]s is not set: "+
			"set %[1]s for all ranks", setting.SecretFile.Name)
	case isGiven && !isFile:
		return secret, fmt.Errorf("the job's secret is in a file here, and %[1]s is not set for rank 0: "+
			"set %[1]s for all ranks", setting.SecretFile.Name)
	case isGiven && theirs != mark(secret):
		return secret, fmt.Errorf("%s=%s: rank 0 has another secret in its file: copy one file to all "+
			"hosts", setting.SecretFile.Name, g.file)
	case isGiven:
		return secret, nil
	}
	b, err := hex.DecodeString(theirs)
	if err != nil || len(b) != len(secret) {
		return secret, fmt.Errorf("the secret that rank 0 has published is no secret of %d bytes",
			len(secret))
	}
	return [secretSize]byte(b), nil
}

// mark returns a mark that identifies a secret without revealing it.
func mark(secret [secretSize]byte) string {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte("weft mark of a secret"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxInFile bounds the size of a secret's file.
const maxInFile = 4096

// readFile makes the secret from a private file: it is the hash of all bytes, so any format will do.
func readFile(name string) (secret [secretSize]byte, err error) {
	// Opening something else than a file must not wait for another process.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return secret, fmt.Errorf("no such file on this host: head -c 32 /dev/urandom > %[1]s; chmod 600 "+
			"%[1]s, and copy it to all hosts", name)
	}
	if err != nil {
		return secret, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return secret, err
	}
	if err := checkOwner(name, info); err != nil {
		return secret, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxInFile+1))
	switch {
	case err != nil:
		return secret, err
	case len(text) < secretSize:
		return secret, fmt.Errorf("%d bytes are too few for a secret, %d are needed: head -c 32 "+
			"/dev/urandom > %s", len(text), secretSize, name)
	case len(text) > maxInFile:
		return secret, fmt.Errorf("more than %d bytes: that is no secret", maxInFile)
	}
	return sha256.Sum256(text), nil
}

// checkOwner checks that only the user can read and write a file. It also accepts a file of root that nobody
// can write and only a group of this process can read, as Kubernetes mounts a Secret for a pod with an
// fsGroup: root decides who is in that group.
func checkOwner(name string, info os.FileInfo) error {
	owner, known := info.Sys().(*syscall.Stat_t)
	mode := info.Mode()
	if known && owner.Uid == 0 && mode.IsRegular() && mode.Perm()&^0o440 == 0 && inGroup(int(owner.Gid)) {
		return nil
	}
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("not a regular file (%s)", mode)
	case mode.Perm()&0o077 != 0:
		return fmt.Errorf("others than its owner can use it (mode %04o): chmod 600 %s (in Kubernetes: "+
			"defaultMode: 0440 and an fsGroup)", mode.Perm(), name)
	case known && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d, not to the user of this process, %d: whoever owns it "+
			"knows the secret; make one of your own", owner.Uid, os.Geteuid())
	}
	return nil
}

// inGroup reports whether this process is in a group.
func inGroup(gid int) bool {
	groups, _ := os.Getgroups()
	return gid == os.Getegid() || slices.Contains(groups, gid)
}

// readPipe takes the secret from weft's own launcher, which has written it before this process was started.
func readPipe(fd int) (secret [secretSize]byte, err error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return secret, fmt.Errorf("job's secret from the launcher: %w", err)
	}
	f := os.NewFile(uintptr(fd), "secret")
	defer f.Close()
	f.SetReadDeadline(time.Now().Add(answerWithin))
	if n, err := io.ReadFull(f, secret[:]); err != nil {
		return secret, fmt.Errorf("job's secret from the launcher: %d of %d bytes: %w; a program is one "+
			"rank only, and Init is called in the process that the launcher started", n, secretSize, err)
	}
	return secret, nil
}
