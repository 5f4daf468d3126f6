package kubeadm

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// ImageVersion returns the version in an image's tag, or nothing. A tag cannot
// contain a plus sign, so it is replaced by an underscore.
func ImageVersion(image string) string {
	image, _, _ = strings.Cut(image, "@")
	at := strings.LastIndex(image, ":")
	if at < strings.LastIndex(image, "/") || at < 0 || !strings.HasPrefix(image[at+1:], "v") {
		return ""
	}
	return strings.ReplaceAll(image[at+1:], "_", "+")
}

// imageTag is a version in an image's tag, which cannot hold a plus sign.
func imageTag(v string) string { return strings.ReplaceAll(v, "+", "_") }

// Newer reports whether version a is above b. A version that cannot be parsed
// is not.
func Newer(a, b string) bool {
	left, err := version.ParseSemantic(a)
	if err != nil {
		return false
	}
	order, err := left.Compare(b)
	return err == nil && order > 0
}
