package tcp

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

// certificates are what a rank shows and checks where connections are encrypted: a job has a certificate
// authority of its own, whose key every rank derives from the job's secret, and each rank signs itself a
// certificate that names the job and the rank. See docs/internals/adr/0014-job-secret.md.
type certificates struct {
	domain string // of the job: what every name ends with
	rank   uint32
	key    ed25519.PrivateKey // the authority's
	root   *x509.Certificate
	pool   *x509.CertPool // of root alone
	now    func() time.Time

	mu  sync.Mutex
	own *tls.Certificate // the present one of this rank; nil before it is needed
}

// A rank's certificate holds from a day before it is made, for hosts whose clocks are late, until a week
// after; one that is older than a day is not shown any more, so that a host's clock may be six days ahead.
const (
	leafBefore = 24 * time.Hour
	leafAfter  = 7 * 24 * time.Hour
	leafRenew  = 24 * time.Hour
)

const authorityLabel = "weft certificate authority 1"

// newCertificates derives the job's authority. Every rank gets the same.
func newCertificates(id transport.Identity, now func() time.Time) (*certificates, error) {
	job := handshake.JobHash(id.Job)
	seed, err := hkdf.Key(sha256.New, id.Secret[:], job[:], authorityLabel, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	c := &certificates{
		domain: hex.EncodeToString(job[:]) + ".weft", rank: id.Rank, key: ed25519.NewKeyFromSeed(seed),
		pool: x509.NewCertPool(), now: now,
	}
	// The same bytes at every rank, whatever its clock says: only the leaves have a time.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: c.domain},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:      true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		return nil, err
	}
	if c.root, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	c.pool.AddCert(c.root)
	return c, nil
}

// name is what the certificate of a rank of the job is made out to.
func (c *certificates) name(rank uint32) string {
	return strconv.FormatUint(uint64(rank), 10) + "." + c.domain
}

// rankOf reads the rank in a certificate that has been checked against the job's authority.
func (c *certificates) rankOf(leaf *x509.Certificate) (uint32, error) {
	if len(leaf.DNSNames) == 1 {
		if text, ok := strings.CutSuffix(leaf.DNSNames[0], "."+c.domain); ok {
			if rank, err := strconv.ParseUint(text, 10, 32); err == nil &&
				c.name(uint32(rank)) == leaf.DNSNames[0] {
				return uint32(rank), nil
			}
		}
	}
	return 0, fmt.Errorf("%w: its certificate is made out to %q, which is no rank of the job",
		transport.ErrAuth, leaf.DNSNames)
}

// leaf is this rank's certificate, with a key that nobody else has.
func (c *certificates) leaf() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.own != nil {
		if age := now.Sub(c.own.Leaf.NotBefore.Add(leafBefore)); age >= 0 && age < leafRenew {
			return c.own, nil
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
		SerialNumber: serial, Subject: pkix.Name{CommonName: c.name(c.rank)},
		DNSNames:  []string{c.name(c.rank)},
		NotBefore: now.Add(-leafBefore), NotAfter: now.Add(leafAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.root, public, c.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c.own = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: parsed}
	return c.own, nil
}

// config is what both sides agree on: TLS 1.3, certificates of this job alone, and no resumption, which would
// skip them.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: c.now, SessionTicketsDisabled: true,
		DynamicRecordSizingDisabled: true,
	}
}

// initiator wants the responder to be a given rank.
func (c *certificates) initiator(rank uint32) *tls.Config {
	conf := c.config()
	conf.RootCAs, conf.ServerName = c.pool, c.name(rank)
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
		error) {
		return c.leaf()
	}
	return conf
}

// responder wants the initiator to be a rank of the job; which one, its Hello has to say as well.
func (c *certificates) responder() *tls.Config {
	conf := c.config()
	conf.ClientCAs, conf.ClientAuth = c.pool, tls.RequireAndVerifyClientCert
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.leaf() }
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := c.rankOf(state.PeerCertificates[0])
		return err
	}
	return conf
}

// distrust words why a peer's certificate was not accepted.
func distrust(err error) error {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return fmt.Errorf("%w: its certificate is made out to %q, not to %q", transport.ErrRefused,
			host.Certificate.DNSNames, host.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: its certificate, good from %v to %v, is not good now: the clocks of the "+
			"two hosts differ by days",
			transport.ErrAuth, invalid.Cert.NotBefore.UTC(), invalid.Cert.NotAfter.UTC())
	}
	return fmt.Errorf("%w: %w", transport.ErrAuth, err)
}
