// Package certificates makes and checks the certificates with which the ranks of a job encrypt their
// connections. It does no I/O. See docs/internals/adr/0014-job-secret.md.
package certificates

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// Job is a rank's view of the certificates of its job. A job has a certificate authority of its own, whose
// key every rank derives from the job's secret. Each rank signs a certificate for itself that names the job
// and the rank.
type Job struct {
	domain string // the suffix of every name
	rank   uint32
	Key    ed25519.PrivateKey // the authority's
	Root   *x509.Certificate
	pool   *x509.CertPool // of root alone
	now    func() time.Time

	mu  sync.Mutex
	own *tls.Certificate // this rank's present certificate; nil before it is needed
}

// A rank's certificate is valid from a day before it is made, for hosts whose clocks are slow, until a week
// after. It is replaced after a day, so that a peer's clock may be six days ahead.
const (
	leafBefore = 24 * time.Hour
	leafAfter  = 7 * 24 * time.Hour
	leafRenew  = 24 * time.Hour
)

// AuthorityLabel is the label with which the authority's key is derived from the secret.
const AuthorityLabel = "weft certificate authority 1"

// New derives the job's authority. Every rank gets the same.
func New(id transport.Identity, now func() time.Time) (*Job, error) {
	job := handshake.JobHash(id.Job)
	seed, err := hkdf.Key(sha256.New, id.Secret[:], job[:], AuthorityLabel, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	j := &Job{
		domain: hex.EncodeToString(job[:]) + ".weft", rank: id.Rank, Key: ed25519.NewKeyFromSeed(seed),
		pool: x509.NewCertPool(), now: now,
	}
	// The same bytes at every rank, whatever its clock shows: only the leaves have a time.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: j.domain},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:      true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, j.Key.Public(), j.Key)
	if err != nil {
		return nil, err
	}
	if j.Root, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	j.pool.AddCert(j.Root)
	return j, nil
}

// Name returns the name in the certificate of a rank.
func (j *Job) Name(rank uint32) string {
	return strconv.FormatUint(uint64(rank), 10) + "." + j.domain
}

// RankOf returns the rank in a certificate that has been verified against the job's authority.
func (j *Job) RankOf(leaf *x509.Certificate) (uint32, error) {
	if len(leaf.DNSNames) == 1 {
		if text, ok := strings.CutSuffix(leaf.DNSNames[0], "."+j.domain); ok {
			if rank, err := strconv.ParseUint(text, 10, 32); err == nil &&
				j.Name(uint32(rank)) == leaf.DNSNames[0] {
				return uint32(rank), nil
			}
		}
	}
	return 0, fmt.Errorf("%w: the peer's certificate names %q, which is not a rank of the job",
		transport.ErrAuth, leaf.DNSNames)
}

// Leaf returns this rank's certificate, with a key that nobody else has.
func (j *Job) Leaf() (*tls.Certificate, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if j.own != nil {
		if age := now.Sub(j.own.Leaf.NotBefore.Add(leafBefore)); age >= 0 && age < leafRenew {
			return j.own, nil
		}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: j.Name(j.rank)},
		DNSNames:  []string{j.Name(j.rank)},
		NotBefore: now.Add(-leafBefore), NotAfter: now.Add(leafAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, j.Root, public, j.Key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	j.own = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: parsed}
	return j.own, nil
}

// config returns the common configuration of both sides: TLS 1.3, certificates of this job alone, and no
// resumption, which would skip them.
func (j *Job) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: j.now, SessionTicketsDisabled: true,
		DynamicRecordSizingDisabled: true,
	}
}

// Initiator returns the configuration of the initiator, which requires the responder to be the given rank.
func (j *Job) Initiator(rank uint32) *tls.Config {
	conf := j.config()
	conf.RootCAs, conf.ServerName = j.pool, j.Name(rank)
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return j.Leaf()
	}
	return conf
}

// Responder returns the configuration of the responder, which requires the initiator to be a rank of the job.
// The Hello must name the same rank.
func (j *Job) Responder() *tls.Config {
	conf := j.config()
	conf.ClientCAs, conf.ClientAuth = j.pool, tls.RequireAndVerifyClientCert
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return j.Leaf() }
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := j.RankOf(state.PeerCertificates[0])
		return err
	}
	return conf
}

// Distrust returns the error for a peer's certificate that was not accepted.
func Distrust(err error) error {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return fmt.Errorf("%w: the peer's certificate names %q, not %q", transport.ErrRefused,
			host.Certificate.DNSNames, host.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: the peer's certificate is valid from %v to %v, not now: the clocks of the "+
			"two hosts differ by days",
			transport.ErrAuth, invalid.Cert.NotBefore.UTC(), invalid.Cert.NotAfter.UTC())
	}
	return fmt.Errorf("%w: %w", transport.ErrAuth, err)
}
