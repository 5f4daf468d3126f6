// Command prose checks the wording of comments, messages, documents and names.
//
//	prose [-list N] PATH...
//
// glossary.tsv lists the words that readers of this field stumble over, and the
// words to write instead. The check fails if a word of class "never" is found,
// if a kind of text has more hits of class "rare" than its limit allows, or if
// it reads no text at all. Text is a comment or a string of Go of at least 12
// characters, a paragraph of Markdown without its code, a comment or a title,
// summary, description or message in YAML, JSON and shell. Rules of class "name"
// apply to each word of a name in Go.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Hits of class "rare" that 1,000 words may have.
const (
	limitAll       = 2.0
	limitGoStrings = 0.5
)

const (
	goComments = "go comments"
	goStrings  = "go strings"
	markdown   = "markdown"
	data       = "yaml and shell"
	goNames    = "go names"
	all        = "all"
)

//go:embed glossary.tsv
var glossary string

func main() {
	list := flag.Int("list", 20, "lines with hits of class \"rare\" to print")
	flag.Parse()
	ok, err := run(flag.Args(), *list, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports whether the texts below the paths are within the limits.
func run(paths []string, list int, out io.Writer) (bool, error) {
	rules, err := parse(glossary)
	if err != nil {
		return false, err
	}
	r := report{rules: rules, words: map[string]int{}, hits: map[string]int{}, list: list, out: out}
	for _, path := range paths {
		if err := filepath.WalkDir(path, r.visit); err != nil {
			return false, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return r.sum(), nil
}

// rule is a line of the glossary.
type rule struct {
	class  string
	words  *regexp.Regexp
	better string
}

func parse(text string) ([]rule, error) {
	var rules []rule
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 3 || !slices.Contains([]string{"never", "rare", "name"}, fields[0]) {
			return nil, fmt.Errorf("line %d of the glossary is not \"never|rare|name, words, better words\"", n+1)
		}
		words, err := regexp.Compile(`\b(` + fields[1] + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("compiling line %d of the glossary: %w", n+1, err)
		}
		rules = append(rules, rule{class: fields[0], words: words, better: fields[2]})
	}
	return rules, nil
}

// report counts words and hits for each kind of text.
type report struct {
	rules       []rule
	words, hits map[string]int
	never       int
	listed      int
	list        int
	out         io.Writer
}

// generated names files that are written from other texts, or that record
// output.
var generated = regexp.MustCompile(`zz_generated|/crd/bases/|/testdata/|(^|/)docs/reference/|(^|/)\.git/`)

func (r *report) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil || entry.IsDir() || generated.MatchString(filepath.ToSlash(path)) {
		return err
	}
	read := readers[filepath.Ext(path)]
	if read == nil {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, t := range read(content) {
		r.count(path, t)
	}
	return nil
}

func (r *report) count(path string, t text) {
	if t.kind != goNames {
		r.words[t.kind] += len(strings.Fields(t.text))
	}
	for _, rule := range r.rules {
		if (t.kind == goNames) != (rule.class == "name") {
			continue
		}
		for _, found := range rule.words.FindAllString(t.text, -1) {
			if rule.class != "rare" {
				r.never++
				fmt.Fprintf(r.out, "%s:%d: do not write %q, write: %s\n", path, t.line, found, rule.better)
				continue
			}
			r.hits[t.kind]++
			if r.listed < r.list {
				r.listed++
				fmt.Fprintf(r.out, "%s:%d: %q, better: %s\n", path, t.line, found, rule.better)
			}
		}
	}
}

// sum prints the rates and reports whether all limits are kept.
func (r *report) sum() bool {
	for _, kind := range []string{goComments, goStrings, markdown, data} {
		r.words[all] += r.words[kind]
		r.hits[all] += r.hits[kind]
	}
	ok := r.never == 0 && r.words[all] > 0
	for _, kind := range []string{goComments, goStrings, markdown, data, all} {
		rate := 1000 * float64(r.hits[kind]) / float64(max(1, r.words[kind]))
		fmt.Fprintf(r.out, "prose: %s: words=%d hits=%d per1000=%.1f\n", kind, r.words[kind], r.hits[kind], rate)
		if limit, limited := map[string]float64{all: limitAll, goStrings: limitGoStrings}[kind]; limited && rate > limit {
			fmt.Fprintf(r.out, "prose: %s: more than %s hits in 1,000 words\n", kind, strconv.FormatFloat(limit, 'g', -1, 64))
			ok = false
		}
	}
	return ok
}

// text is one comment, string, paragraph or field.
type text struct {
	kind string
	line int
	text string
}

var readers = map[string]func([]byte) []text{
	".go": readGo, ".md": readMarkdown,
	".yaml": readData, ".yml": readData, ".json": readData, ".sh": readData,
}

// directive is a comment for a tool.
var directive = regexp.MustCompile(`^//(nolint|go:|\+|\s*\+|line )`)

func readGo(content []byte) []text {
	var texts []text
	seen := map[string]bool{}
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	// The compiler reports errors of syntax.
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		position, kind, literal := s.Scan()
		line := file.Line(position)
		switch {
		case kind == token.EOF:
			return texts
		case kind == token.COMMENT && !directive.MatchString(literal):
			texts = append(texts, text{goComments, line, strings.Trim(literal, "/* ")})
		case kind == token.IDENT && !seen[literal]:
			seen[literal] = true
			words := strings.Join(wordOfName.FindAllString(literal, -1), " ")
			texts = append(texts, text{goNames, line, strings.ToLower(words)})
		case kind == token.STRING:
			if value, err := strconv.Unquote(literal); err == nil && len(value) >= 12 {
				texts = append(texts, text{goStrings, line, value})
			}
		}
	}
}

// wordOfName is one word of a name, such as Set in NovaModuleSet.
var wordOfName = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

var inlineCode = regexp.MustCompile("`[^`]*`")

func readMarkdown(content []byte) []text {
	var texts []text
	code := false
	for line, value := range lines(content) {
		if strings.HasPrefix(strings.TrimSpace(value), "```") {
			code = !code
			continue
		}
		if !code {
			texts = append(texts, text{markdown, line, inlineCode.ReplaceAllString(value, "")})
		}
	}
	return texts
}

var dataText = regexp.MustCompile(`(?:#\s|(?:summary|description|title|message)"?:\s)(.*)$`)

func readData(content []byte) []text {
	var texts []text
	for line, value := range lines(content) {
		if found := dataText.FindStringSubmatch(value); found != nil {
			texts = append(texts, text{data, line, found[1]})
		}
	}
	return texts
}

// lines yields the lines of a file with their numbers, from 1.
func lines(content []byte) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		s := bufio.NewScanner(bytes.NewReader(content))
		s.Buffer(nil, len(content)+1)
		for n := 1; s.Scan(); n++ {
			if !yield(n, s.Text()) {
				return
			}
		}
	}
}
