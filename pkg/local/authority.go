package local

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
)

// The files in a registry's tls folder.
const (
	caCertificateFile = "ca.pem"
	caKeyFile         = "ca.key"
)

// issue returns a new server certificate for a loopback address, issued by an
// authority.
func issue(ca *x509.Certificate, caKey *ecdsa.PrivateKey, ip net.IP, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	notAfter := now.AddDate(1, 0, 0)
	if notAfter.After(ca.NotAfter) {
		notAfter = ca.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "Larder on this machine"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{ip},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// loadCA reads the certificate authority in a folder. The errors name its files
// without the folder.
func loadCA(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificate, err := os.ReadFile(filepath.Join(dir, caCertificateFile))
	if err != nil {
		return nil, nil, regularfile.Unreadable(caCertificateFile, err)
	}
	privateKey, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, nil, regularfile.Unreadable(caKeyFile, err)
	}
	pair, err := tls.X509KeyPair(certificate, privateKey)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || now.After(pair.Leaf.NotAfter) {
		return nil, nil, errors.New("it has expired or is not a certificate authority")
	}
	return pair.Leaf, key, nil
}

// makeCA creates a certificate authority that can only issue certificates for
// loopback addresses, so that it is safe to trust. It creates the files in a
// temporary folder and renames that. Several servers that start at the same
// time therefore use the same authority.
func makeCA(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:                serial(),
		Subject:                     pkix.Name{CommonName: "Larder on this machine, certificate authority"},
		NotBefore:                   now.Add(-time.Hour),
		NotAfter:                    now.AddDate(10, 0, 0),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{"localhost"},
		PermittedIPRanges:           []*net.IPNet{{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "tls-unfinished-*")
	if err != nil {
		return nil, nil, regularfile.Unwritable(filepath.Dir(dir), err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	err = errors.Join(
		writeDurably(filepath.Join(temporary, caKeyFile),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
		writeDurably(filepath.Join(temporary, caCertificateFile),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	if err != nil {
		return nil, nil, err
	}
	renamed := os.Rename(temporary, dir)
	ca, caKey, err := loadCA(dir, now)
	if err != nil {
		return nil, nil, errors.Join(err, regularfile.Unwritable(dir, renamed))
	}
	return ca, caKey, nil
}

func writeDurably(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return regularfile.Unwritable(filepath.Base(name), err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return regularfile.Unwritable(filepath.Base(name), cmp.Or(err, f.Close()))
}

// serial returns a random serial number of 127 bits.
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return n
}
