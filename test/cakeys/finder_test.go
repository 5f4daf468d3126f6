package cakeys

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// authority returns a certificate with its key, in the forms of PEM.
func authority(t *testing.T, key crypto.Signer) (certificate *x509.Certificate, forms map[string][]byte) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	forms = map[string][]byte{"PKCS 8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		sec1, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		forms["SEC 1"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})
	case *rsa.PrivateKey:
		forms["PKCS 1"] = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	}
	return certificate, forms
}

// packed are the ways in which data is stored or transferred.
var packed = map[string]func(*testing.T, []byte) []byte{
	"Plain": func(_ *testing.T, data []byte) []byte { return data },
	"DER": func(_ *testing.T, data []byte) []byte {
		block, _ := pem.Decode(data)
		return block.Bytes
	},
	"YAML": func(_ *testing.T, data []byte) []byte {
		return []byte("content: |\n    " + strings.ReplaceAll(string(data), "\n", "\n    "))
	},
	"Words": func(_ *testing.T, data []byte) []byte {
		return []byte("these words are no base64 " + strings.TrimPrefix(string(data), "-----BEGIN "))
	},
	"JSON": func(t *testing.T, data []byte) []byte {
		t.Helper()
		out, err := json.Marshal(map[string]string{"key": string(data)})
		if err != nil {
			t.Fatal(err)
		}
		return out
	},
	"Base64": func(_ *testing.T, data []byte) []byte {
		return []byte("data: " + base64.StdEncoding.EncodeToString(data) + "\n")
	},
	"Gzip":         func(t *testing.T, data []byte) []byte { t.Helper(); return zip(t, append([]byte("before "), data...)) },
	"GzipInBase64": func(t *testing.T, data []byte) []byte { t.Helper(); return userData(t, data) },
	"Memory": func(t *testing.T, data []byte) []byte {
		t.Helper()
		return append(append(bytes.Repeat([]byte{0, 0x1f, 0x8b, 8}, 100), userData(t, userData(t, data))...), 0, 0, 0)
	},
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	out := &bytes.Buffer{}
	writer := gzip.NewWriter(out)
	if _, err := writer.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func userData(t *testing.T, data []byte) []byte {
	t.Helper()
	return []byte("encoding: gz+b64\ncontent: " + base64.StdEncoding.EncodeToString(zip(t, data)) + "\n")
}

func TestFinder(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, others := authority(t, other)
	for kind, key := range map[string]crypto.Signer{"P256": p256, "P384": p384, "RSA": long} {
		certificate, forms := authority(t, key)
		public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
		f, err := New(certificate)
		if err != nil {
			t.Fatal(err)
		}
		for name, pack := range packed {
			t.Run(kind+"/"+name, func(t *testing.T) {
				for form, data := range forms {
					if !f.In(pack(t, data)) {
						t.Errorf("%s: the key was not found", form)
					}
				}
				if f.In(pack(t, public)) {
					t.Error("the certificate has no private key")
				}
				for form, data := range others {
					if f.In(pack(t, data)) {
						t.Errorf("%s: the key belongs to no authority", form)
					}
				}
			})
		}
	}
}
