package iso

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"
)

// image returns an image that the library wrote.
func image(t *testing.T, label string, files map[string]string) []byte {
	t.Helper()
	w, err := iso9660.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Cleanup() }()
	for name, content := range files {
		if err := w.AddFile(strings.NewReader(content), name); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := w.WriteTo(&out, label); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRead(t *testing.T) {
	data := image(t, "cidata", map[string]string{"META.TXT": "a", "LONG.TXT": strings.Repeat("b", 5000)})
	got, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Label != "cidata" || string(got.Files["meta.txt"]) != "a" || len(got.Files["long.txt"]) != 5000 || len(got.Files) != 2 {
		t.Errorf("got %q with %d files", got.Label, len(got.Files))
	}
}

func TestReadRejects(t *testing.T) {
	for name, data := range map[string][]byte{
		"empty": nil, "no image": []byte("#cloud-config"), "zeros": make([]byte, 1<<20),
		"cut off": image(t, "cidata", map[string]string{"LONG.TXT": strings.Repeat("b", 50000)})[:50000],
	} {
		if got, err := Read(data); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
