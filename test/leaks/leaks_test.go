package leaks

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newKey returns a private key in PEM.
func newKey(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.MarshalPKCS8PrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func compress(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(w.Close()).To(Succeed())
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

func secretWith(key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}, Data: map[string][]byte{key: []byte(value)}}
}

// A planted value is found in any of the forms that it has in a Secret, and the
// finding does not repeat it.
func TestFind(t *testing.T) {
	key := newKey(t)
	keyLine := strings.Split(key, "\n")[1]
	const token, password = "abcdef.0123456789abcdef", "Tr0ub4dor&3"
	for name, c := range map[string]struct{ key, value, line, planted string }{
		"password":              {"password", password, "logging in with " + password, password},
		"password with newline": {"password", password + "\n", `{"msg":"` + password + `"}`, password},
		"encoded password":      {"password", password, `data: {"password":"` + encode(password) + `"}`, encode(password)},
		"private key":           {"tls.key", key, "parsing " + strings.ReplaceAll(key, "\n", `\n`), keyLine},
		"one line of a key":     {"tls.key", key, keyLine, keyLine},
		"kubeconfig's key": {
			"value", "users:\n- user:\n    client-key-data: " + encode(key) + "\n", "decoded: " + keyLine, keyLine,
		},
		"kubeconfig's key as it is": {
			"value", "users:\n- user:\n    client-key-data: " + encode(key) + "\n", "kubeconfig " + encode(key), encode(key)[60:],
		},
		"kubeconfig's token": {"value", "users:\n- user:\n    token: " + token + "\n", "Bearer " + token, token},
		"indented key":       {"value", "content: |\n    " + strings.ReplaceAll(key, "\n", "\n    "), "x " + keyLine, keyLine},
		"packed file": {
			"value", "write_files:\n- encoding: gzip+base64\n  content: " + compress(t, "a file\npassword: "+password+"\n"+strings.Repeat("text\n", 20)),
			"user " + password, password,
		},
		"key in a packed configuration": {
			"value", "write_files:\n- encoding: gz+b64\n  content: " + compress(t, `{"text":"`+strings.ReplaceAll(key, "\n", `\n`)+`","x":"`+strings.Repeat("text ", 40)+`"}`),
			"parsing " + keyLine, keyLine,
		},
		"file of a file": {
			"value", `{"files":[{"source":"data:;base64,` + encode(`{"inner":"`+encode(key)+`"}`) + `"}]}`, keyLine, keyLine,
		},
		"pre-signed URL": {
			"url-of-snapshot", "https://s3.example/b?X-Amz-Signature=" + strings.Repeat("0a", 32) + "&x=y",
			"GET /b?X-Amz-Signature=" + strings.Repeat("0a", 32), strings.Repeat("0a", 30),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var values Values
			values.Add(secretWith(c.key, c.value))
			leaks := values.Find("nova-bootstrap.log", []byte("one line\n"+c.line+"\n"))
			g.Expect(leaks).To(HaveLen(1))
			g.Expect(leaks[0].Line).To(Equal(2))
			g.Expect(leaks[0].String()).To(HavePrefix("nova-bootstrap.log:2 has the value of key " + c.key + " of Secret team/blue: "))
			g.Expect(leaks[0].String()).NotTo(ContainSubstring(c.planted))
		})
	}
}

// Public and common values are not reported.
func TestPublic(t *testing.T) {
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: bytes.Repeat([]byte("certificate"), 40)}))
	for name, c := range map[string]struct{ key, value, line string }{
		"user name":               {"username", "administrator@vsphere.local", "administrator@vsphere.local logged in"},
		"format":                  {"format", "cloud-config", "rendered cloud-config"},
		"certificate":             {"value", "certificate-authority-data: " + encode(certificate), encode(certificate)},
		"short value":             {"password", "pass", "passed"},
		"URL":                     {"ovirt_url", "https://engine.example/ovirt-engine/api", "connecting to https://engine.example/ovirt-engine/api"},
		"server":                  {"where", "vcenter.example.com:443", "connecting to vcenter.example.com:443"},
		"path after password":     {"value", "#cloud-config\npassword_file: x\npassword: /etc/nova/password\n", "reading /etc/nova/password"},
		"text of bootstrap data":  {"value", "#cloud-config\nruncmd:\n- kubeadm init --config /run/kubeadm.yaml\n", "- kubeadm init --config /run/kubeadm.yaml"},
		"variable after password": {"value", "run: |\n  password=${PASSWORD}\n  x\n", "password=${PASSWORD}"},
	} {
		t.Run(name, func(t *testing.T) {
			var values Values
			values.Add(secretWith(c.key, c.value))
			NewWithT(t).Expect(values.Find("log", []byte(c.line+"\n"))).To(BeEmpty())
		})
	}
}

func TestEachKeyIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	var values Values
	for i := range 3 {
		secret := secretWith("password", fmt.Sprintf("password-number-%d", i))
		secret.Name = fmt.Sprint("secret-", i)
		values.Add(secret)
		values.Add(secret)
	}
	g.Expect(values.Len()).To(Equal(6), "each also in base64")
	leaks := values.Find("log", []byte("password-number-2\npassword-number-2\npassword-number-0 and password-number-2"))
	g.Expect(leaks).To(HaveLen(2))
	g.Expect(leaks[0].Name).To(Equal("secret-2"))
	g.Expect(leaks[1].Name).To(Equal("secret-0"))
}

func TestNothingIsFoundWithoutValues(t *testing.T) {
	var values Values
	NewWithT(t).Expect(values.Find("log", []byte("anything\n"))).To(BeEmpty())
}
