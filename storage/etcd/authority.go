package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Files of a cluster's member, in its data directory, for the owner only.
const (
	authorityCertName = "cluster-ca.crt"
	authorityKeyName  = "cluster-ca.key"
	memberCertName    = "cluster-member.crt"
	memberKeyName     = "cluster-member.key"
	joinTokenName     = "join-token"
)

const (
	// authorityTime is how long the authority's certificate is valid: longer than any cluster lives, because replacing
	// it takes a new cluster.
	authorityTime = 50 * 365 * 24 * time.Hour
	// memberTime is how long a member's certificate is valid. Each start makes a new one.
	memberTime = 10 * 365 * 24 * time.Hour
	// clockSkew is how much earlier a certificate begins, for machines whose clocks differ.
	clockSkew = time.Hour
	// serialBits is the length of a certificate's random serial number: no two are the same, and it fits into the 20 bytes
	// that RFC 5280 allows.
	serialBits = 120
)

// authority signs the certificates of a cluster's members. All members have it, so that each can let others in. Who has
// a certificate that it signed is a member.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificate("apiserver-lite cluster", authorityTime)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// certificate is what all certificates have.
func certificate(name string, valid time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(valid)}, nil
}

// parseAuthority reads the PEM form of an authority, and checks that the key is the certificate's.
func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("it isn't the authority of a cluster")
	}
	return &authority{pair.Leaf, key}, nil
}

func (a *authority) fingerprint() [sha256.Size]byte { return sha256.Sum256(a.cert.Raw) }

func (a *authority) certPEM() []byte { return toPEM("CERTIFICATE", a.cert.Raw) }

func (a *authority) keyPEM() ([]byte, error) { return privatePEM(a.key) }

func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return toPEM("PRIVATE KEY", der), err
}

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// pool is what a member trusts: this authority alone.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue makes the certificate of a member, for both ends of a connection. Others reach the member at host. The chain
// has the authority too: a joiner knows it by its fingerprint only.
func (a *authority) issue(host string) (chainPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := certificate("apiserver-lite member", memberTime)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = privatePEM(key)
	return append(toPEM("CERTIFICATE", der), a.certPEM()...), keyPEM, err
}

// loadAuthority reads the authority of the directory's cluster; nil if there's none.
func (d *dataDir) loadAuthority() (*authority, error) {
	cert, err := os.ReadFile(d.file(authorityCertName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(d.file(authorityKeyName))
	if err != nil {
		return nil, err
	}
	a, err := parseAuthority(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w; put the files back that belong to the directory", d.file(authorityCertName), authorityKeyName, err)
	}
	return a, nil
}

// saveAuthority writes the authority's files. The certificate comes last: without it there's no authority.
func (d *dataDir) saveAuthority(a *authority) error {
	key, err := a.keyPEM()
	if err != nil {
		return err
	}
	if err := d.writeFile(authorityKeyName, key); err != nil {
		return err
	}
	return d.writeFile(authorityCertName, a.certPEM())
}

// saveMember makes the member's certificate for this run, and says where its files are, for etcd's own connections.
func (d *dataDir) saveMember(a *authority, host string) (transport.TLSInfo, tls.Certificate, error) {
	chain, key, err := a.issue(host)
	if err != nil {
		return transport.TLSInfo{}, tls.Certificate{}, err
	}
	if err := errors.Join(d.writeFile(memberKeyName, key), d.writeFile(memberCertName, chain)); err != nil {
		return transport.TLSInfo{}, tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	return transport.TLSInfo{
		CertFile: d.file(memberCertName), KeyFile: d.file(memberKeyName), TrustedCAFile: d.file(authorityCertName), ClientCertAuth: true,
	}, pair, err
}

// loadToken reads the directory's own token, or makes one. A token that was removed is replaced by one with another
// secret.
func (d *dataDir) loadToken(a *authority) (joinToken, error) {
	t, err := readToken(d.file(joinTokenName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t = newToken(a.fingerprint())
		return t, d.saveToken(t)
	case err != nil:
		return t, err
	case t.authority != a.fingerprint():
		return t, fmt.Errorf("%s is another cluster's: remove it, and the next start makes one", d.file(joinTokenName))
	}
	return t, os.Chmod(d.file(joinTokenName), 0o600)
}

func (d *dataDir) saveToken(t joinToken) error {
	return d.writeFile(joinTokenName, []byte(t.String()+"\n"))
}
