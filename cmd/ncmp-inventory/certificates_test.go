package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	file string // the certificate in PEM
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(dir, "ca-"+rand.Text()+".pem")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.cert, a.key, a.pem = a.sign(t, a.cert)
	require.NoError(t, os.WriteFile(a.file, a.pem, 0o644)) // servers run as other users
	return a
}

// sign makes a key and a certificate for it, which the authority signs; one that
// has no certificate yet signs its own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), by)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair is a certificate and its key, in PEM and in files.
type pair struct {
	cert, key         []byte
	certFile, keyFile string
}

// issue makes a certificate of a server at 127.0.0.1 which is called name, or of
// a client of that name. The files can be read by us alone.
func (a *authority) issue(t *testing.T, dir, name string) pair {
	t.Helper()
	_, key, cert := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	p := pair{cert: cert, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
	p.certFile, p.keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(p.certFile, p.cert, 0o600))
	require.NoError(t, os.WriteFile(p.keyFile, p.key, 0o600))
	return p
}
