package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const clean = "The controller deletes the virtual machine after its node was drained. "

func TestRun(t *testing.T) {
	many := strings.Repeat(clean, 100)
	for name, c := range map[string]struct {
		file, content string
		ok            bool
		prints        string
	}{
		"plain words":                {"a.md", clean, true, "prose: all: words=11 hits=0"},
		"a word of the first class":  {"a.md", many + "It is made anew.", false, `a.md:1: do not write "anew", write: recreated`},
		"a rare word":                {"a.md", many + "It shows what changed.", true, `"what", better:`},
		"too many rare words":        {"a.md", clean + "It shows what changed.", false, "prose: all: more than 2 hits"},
		"code in Markdown":           {"a.md", clean + "`kubectl anew`\n```\nanew\n```\n", true, "hits=0"},
		"a comment":                  {"a.go", "package a\n\n// b is made anew.\nvar b int\n", false, `a.go:3: do not write "anew"`},
		"a comment for a tool":       {"a.go", "package a // Package a does nothing.\n\n//nolint:anew // " + clean + "\nvar b int\n", true, "hits=0"},
		"a name is no text":          {"a.go", "package a // Package a does nothing.\n\nvar empty int\n", true, "hits=0"},
		"a word in a name":           {"a.go", "package a // Package a does nothing.\n\nvar lastJudgement int\n", false, `a.go:3: do not write "judgement"`},
		"a name in another word":     {"a.go", "package a // Package a does nothing.\n\nvar deafen int\n", true, "hits=0"},
		"a word for names in text":   {"a.md", clean + "The API server is settled.", true, "hits=0"},
		"a short string is a value":  {"a.go", "package a // Package a does nothing.\n\nvar b = \"anew\"\n", true, "hits=0"},
		"a message":                  {"a.go", "package a\n\nvar b = \"the VM is made anew\"\n", false, `a.go:3: do not write "anew"`},
		"one rare word in a message": {"a.go", "package a\n\n// " + many + "\nvar b = \"the VM shows what changed\"\n", false, "prose: go strings: more than 0.5 hits"},
		"a summary of an alert":      {"a.yaml", "summary: The VM is made anew\n", false, `a.yaml:1: do not write "anew"`},
		"British spelling":           {"a.sh", "# initialises the node\n", false, "write: US spelling"},
		"generated files":            {"zz_generated.go", "package a\n\n// made anew\nvar b int\n", false, "prose: all: words=0"},
		"no text at all":             {"a.txt", "made anew", false, "prose: all: words=0"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, c.file), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			ok, err := run([]string{folder}, 20, &out)
			if err != nil {
				t.Fatal(err)
			}
			if ok != c.ok || !strings.Contains(out.String(), c.prints) {
				t.Errorf("ok is %v, expected %v and %q in:\n%s", ok, c.ok, c.prints, out.String())
			}
		})
	}
}

func TestMissingPath(t *testing.T) {
	if _, err := run([]string{filepath.Join(t.TempDir(), "absent")}, 0, &strings.Builder{}); err == nil {
		t.Error("a path that does not exist is accepted")
	}
}

func TestParse(t *testing.T) {
	for _, line := range []string{"never\tword", "often\tword\tbetter", "rare\t(\tbetter"} {
		if _, err := parse(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}
