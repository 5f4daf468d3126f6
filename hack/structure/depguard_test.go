package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// expression returns the regular expression of a glob of depguard: * stands for a
// part of a path and ** for any number of parts.
func expression(glob string) *regexp.Regexp {
	text := regexp.QuoteMeta(glob)
	text = strings.ReplaceAll(text, `\*\*`, `.*`)
	text = strings.ReplaceAll(text, `\*`, `[^/]*`)
	return regexp.MustCompile("^" + text + "$")
}

// goFiles returns the Go files of the project, as absolute paths in it.
func goFiles(t *testing.T) (files []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			name, err := filepath.Rel(root, path)
			files = append(files, "/"+filepath.ToSlash(name))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// An import rule without files allows everything. "x/**/*.go" does not match the
// files of x itself, so a rule must not use it.
func TestImportRulesHaveFiles(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `json:"files"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	if len(rules) < 10 {
		t.Fatalf("%d rules were read", len(rules))
	}
	files := goFiles(t)
	for name, rule := range rules {
		if len(rule.Files) == 0 {
			t.Errorf("%s has no files", name)
		}
		for _, glob := range rule.Files {
			pattern := strings.TrimPrefix(glob, "!")
			if strings.HasPrefix(pattern, "$") {
				continue
			}
			if strings.Contains(pattern, "/**/*.go") {
				t.Errorf("%s: %s does not match files directly in the folder: write /**.go", name, glob)
			}
			matches := expression(pattern).MatchString
			found := false
			for _, file := range files {
				found = found || matches(file)
			}
			if !found {
				t.Errorf("%s: %s matches no file", name, glob)
			}
		}
	}
}
