package plan

import "testing"

// FuzzReadMark parses comments of VMs, which each user of the engine can
// change: a mark that was parsed must be the same after formatting and parsing
// it again.
func FuzzReadMark(f *testing.F) {
	for _, seed := range []string{
		"", "nova-machine/", "web server",
		"nova-machine/6ba7b810-9dad-51d1-80b4-00c04fd430c8",
		" nova-machine/6ba7b810-9dad-51d1-80b4-00c04fd430c8?user-data=cloud-config&zone=b%20c\n",
		"nova-machine/{6ba7b810-9dad-51d1-80b4-00c04fd430c8}?zone=a;b",
		"nova-machine/6ba7b8109dad51d180b400c04fd430c8?zone=%zz",
		"//nova-machine/6ba7b810-9dad-51d1-80b4-00c04fd430c8#?zone=a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, comment string) {
		read, ok := ReadMark(comment)
		if (OwnerOf(comment) != "") != ok {
			t.Errorf("Subject(%q) = %q, but ReadMark returned %t", comment, OwnerOf(comment), ok)
		}
		if !ok {
			return
		}
		again, ok := ReadMark(read.String())
		if !ok || again != read {
			t.Errorf("read %+v from %q, and %+v from %q", read, comment, again, read.String())
		}
	})
}
