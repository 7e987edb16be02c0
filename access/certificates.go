package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// rereadAfter is for how long a file counts as read: then the next request that shows a certificate reads the file of
// authorities again, and a goroutine the one of --authentication-config.
const rereadAfter = time.Second

// authorities are those of a PEM file, by which client certificates are verified. The file is read again when it changes;
// if it can't be used then, those that were read last stay.
type authorities struct {
	file string
	log  *slog.Logger

	mu    sync.Mutex // guards what follows; held while the file is read, which is small
	read  time.Time
	pem   []byte
	trust *trust
}

// trust is one state of a file of authorities, and what was verified by it.
type trust struct {
	roots    *x509.CertPool
	all      []*x509.Certificate // what roots has
	verified memo[verifiedCertificate]
	refused  memo[refusedCertificate] // apart, so that strangers push out nobody's
}

const (
	// maxChain is how many certificates a client may show. Each can cost the signatures of all, and no authority that is in
	// use needs more.
	maxChain = 8
	// refusedFor is for how long a refusal counts: long enough that who asks again and again costs nothing, and so short
	// that a certificate which begins to count is let in.
	refusedFor = 5 * time.Second
	// maxRefusal is how long the text is, in bytes, that a refusal is remembered with: it quotes the certificate.
	maxRefusal = 1 << 10
)

// refusedCertificate is why a chain isn't believed, and until when that isn't looked at again.
type refusedCertificate struct {
	err   error
	until time.Time
}

// verifiedCertificate says when the certificates of a chain count.
type verifiedCertificate struct{ notBefore, notAfter time.Time }

// newAuthorities reads a file. It's nil without one.
func newAuthorities(file string, log *slog.Logger) (*authorities, error) {
	if file == "" {
		return nil, nil
	}
	a := &authorities{file: file, log: log}
	return a, a.rereadLocked(time.Now())
}

func (a *authorities) rereadLocked(now time.Time) error {
	a.read = now
	data, err := os.ReadFile(a.file)
	if err != nil || a.trust != nil && bytes.Equal(data, a.pem) {
		return err
	}
	next := &trust{roots: x509.NewCertPool()}
	for block := range blocks(data) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return fmt.Errorf("%s has a block %q that is no certificate", a.file, block.Type)
		}
		next.roots.AddCert(cert)
		next.all = append(next.all, cert)
	}
	if len(next.all) == 0 {
		return fmt.Errorf("%s has no certificate as PEM", a.file)
	}
	a.pem, a.trust = data, next
	return nil
}

// overlaps tells whether two files had a certificate in common when they were read last. Without a file there's none.
func (a *authorities) overlaps(b *authorities) bool {
	return a != nil && b != nil && slices.ContainsFunc(a.trust.all, func(cert *x509.Certificate) bool {
		return slices.ContainsFunc(b.trust.all, cert.Equal)
	})
}

// current returns what is trusted now.
func (a *authorities) current(now time.Time) *trust {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.read) >= rereadAfter {
		if err := a.rereadLocked(now); err != nil {
			a.log.Error("the file of authorities of client certificates can't be used; those that were read before stay", "error", err)
		}
	}
	return a.trust
}

// shownBy returns the certificates that a request's client has shown, its own first.
func shownBy(r *http.Request) []*x509.Certificate {
	if r.TLS == nil {
		return nil
	}
	return r.TLS.PeerCertificates
}

// verify returns the certificate of a client, nil if it has shown none. The error is why it isn't believed.
func (a *authorities) verify(shown []*x509.Certificate) (*x509.Certificate, error) {
	if a == nil || len(shown) == 0 {
		return nil, nil
	}
	now := time.Now()
	trust := a.current(now)
	hash := hashOf(shown)
	if v, ok := trust.verified.get(hash); ok && !now.Before(v.notBefore) && !now.After(v.notAfter) {
		return shown[0], nil
	}
	if len(shown) > maxChain {
		return nil, fmt.Errorf("the certificate %s is not believed: it comes with %d others, and a chain may have %d", serial(shown[0]), len(shown)-1, maxChain)
	}
	if r, ok := trust.refused.get(hash); ok && now.Before(r.until) {
		return nil, r.err
	}
	options := x509.VerifyOptions{Roots: trust.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(shown) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, c := range shown[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	chains, err := shown[0].Verify(options)
	if err != nil {
		err = errors.New(clip.To(fmt.Sprintf("the certificate %s is not believed: %v", serial(shown[0]), err), maxRefusal)) // without what x509 says: that has the certificate in it
		trust.refused.put(hash, refusedCertificate{err, now.Add(refusedFor)})
		return nil, err
	}
	trust.verified.put(hash, lifeOf(chains[0]))
	return shown[0], nil
}

// hashOf is of all that a client has shown: the chain may lead over any of them.
func hashOf(shown []*x509.Certificate) (sum [sha256.Size]byte) {
	if len(shown) == 1 {
		return sha256.Sum256(shown[0].Raw)
	}
	h := sha256.New()
	for _, c := range shown {
		h.Write(c.Raw) // DER says how long it is, so that no two lists are the same bytes
	}
	h.Sum(sum[:0])
	return sum
}

// lifeOf is when all certificates of a chain count.
func lifeOf(chain []*x509.Certificate) (v verifiedCertificate) {
	v = verifiedCertificate{chain[0].NotBefore, chain[0].NotAfter}
	for _, c := range chain[1:] {
		if c.NotBefore.After(v.notBefore) {
			v.notBefore = c.NotBefore
		}
		if c.NotAfter.Before(v.notAfter) {
			v.notAfter = c.NotAfter
		}
	}
	return v
}

// serial names a certificate in the log.
func serial(c *x509.Certificate) string {
	return fmt.Sprintf("%q with serial number %s", c.Subject.CommonName, c.SerialNumber)
}

// uidType is the object identifier under which a subject has a user's uid in Kubernetes.
var uidType = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// certificateUser is who a certificate is for, nil for nobody, as in Kubernetes.
func certificateUser(c *x509.Certificate) (user.Info, error) {
	if c.Subject.CommonName == "" {
		return nil, nil
	}
	uid := ""
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(uidType) {
			continue
		}
		value, ok := name.Value.(string)
		if !ok || value == "" || uid != "" {
			return nil, errors.New("the certificate's subject has a uid that is no text, or several")
		}
		uid = value
	}
	sum := sha256.Sum256(c.Raw)
	return &user.DefaultInfo{
		Name: c.Subject.CommonName, UID: uid, Groups: c.Subject.Organization,
		Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}
