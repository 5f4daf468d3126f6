package kubeadm

import "testing"

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.3":             "v1.36.3",
		"registry.k8s.io/kube-apiserver:v1.36.3@sha256:0123": "v1.36.3",
		"host:5000/kube-apiserver:v1.36.3_nova.1":            "v1.36.3+nova.1",
		"host:5000/kube-apiserver":                           "",
		"kube-apiserver:latest":                              "",
		"kube-apiserver@sha256:0123":                         "",
		"":                                                   "",
	} {
		if got := ImageVersion(image); got != want {
			t.Errorf("%s: want %q, got %q", image, want, got)
		}
	}
}
