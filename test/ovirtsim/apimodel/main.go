package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: apimodel MODEL, the work tree of ovirt-engine-api-model")
	}
	var lines []string
	err := filepath.WalkDir(filepath.Join(args[0], "src", "main", "java"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".java" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines = append(lines, convert(string(source))...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the model: %w", err)
	}
	slices.Sort(lines)
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

var (
	comment    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	annotation = regexp.MustCompile(`^@(In|Out|Link|Deprecated|Service|Root|Type|Override)\b|^@\w+\([^)]*\)`)
	enum       = regexp.MustCompile(`(?s)public enum (\w+)\s*\{(.*)\}`)
	kind       = regexp.MustCompile(`public interface (\w+)(?:\s+extends\s+([\w., ]+?))?\s*\{`)
	nested     = regexp.MustCompile(`^interface (\w+)(?:\s+extends\s+([\w.]+))?\s*\{`)
	member     = regexp.MustCompile(`^([\w.]+)(\[\])?\s+(\w+)\(([^)]*)\)\s*;`)
	call       = regexp.MustCompile(`(\w+)\(\)(\[COLLECTION\])?`)
)

// convert returns the lines that describe the one type or service of a file.
func convert(source string) []string {
	isService := strings.Contains(source, "\n@Service")
	source = comment.ReplaceAllString(source, "")
	if m := enum.FindStringSubmatch(source); m != nil {
		values, _, _ := strings.Cut(m[2], ";")
		words := []string{"enum", snake(m[1])}
		for value := range strings.SplitSeq(values, ",") {
			if _, value = annotations(strings.TrimSpace(value)); value != "" {
				words = append(words, strings.ToLower(value))
			}
		}
		return []string{strings.Join(words, " ")}
	}
	at := kind.FindStringSubmatchIndex(source)
	if at == nil {
		return nil
	}
	name, parents := source[at[2]:at[3]], ""
	if at[4] >= 0 {
		parents = source[at[4]:at[5]]
	}
	head := "type " + snake(name)
	if isService || strings.HasSuffix(name, "Service") {
		head = "service " + snake(strings.TrimSuffix(name, "Service"))
	} else if strings.Contains(source, "package mixins") {
		head = "mixin " + snake(name)
	}
	words := []string{head}
	for parent := range strings.SplitSeq(parents, ",") {
		if parent = strings.TrimSpace(parent); parent != "" {
			words = append(words, "<"+snake(strings.TrimSuffix(parent, "Service")))
		}
	}
	out := []string{}
	head, out = body(strings.Join(words, " "), source[at[1]:], out)
	return append(out, head)
}

// body reads the members of an interface up to its closing brace.
func body(head, rest string, out []string) (string, []string) {
	for {
		rest = strings.TrimSpace(rest)
		if rest == "" || rest[0] == '}' {
			return head, out
		}
		var marks []string
		marks, rest = annotations(rest)
		switch {
		case nested.MatchString(rest):
			end := closing(rest)
			out = append(out, method(head, rest[:end], nil)...)
			rest = rest[end:]
		case strings.HasPrefix(rest, "default "):
			rest = rest[closing(rest):]
		default:
			m := member.FindStringSubmatch(rest)
			if m == nil {
				_, rest, _ = strings.Cut(rest, "\n")
				continue
			}
			rest = rest[len(m[0]):]
			typ, field := snake(strings.TrimSuffix(last(m[1]), "Service")), snake(m[3])
			if m[4] != "" {
				field = "{}"
			}
			head += " " + field + ":" + typ + m[2]
			if slices.Contains(marks, "@Link") {
				head += "@"
			}
		}
	}
}

// method returns the lines of a method and its variants: the inputs, and the
// groups of fields of which one has to be there.
func method(head, source string, inherited []string) []string {
	m := nested.FindStringSubmatch(source)
	service := strings.Fields(head)[1]
	rest := source[len(m[0]) : len(source)-1]
	words := slices.Clone(inherited)
	var variants []string
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		var marks []string
		marks, rest = annotations(rest)
		switch {
		case nested.MatchString(rest):
			end := closing(rest)
			variants = append(variants, rest[:end])
			rest = rest[end:]
		case strings.HasPrefix(rest, "default "):
			end := closing(rest)
			words = append(words, required(rest[:end])...)
			rest = rest[end:]
		default:
			f := member.FindStringSubmatch(rest)
			if f == nil {
				_, rest, _ = strings.Cut(rest, "\n")
				continue
			}
			rest = rest[len(f[0]):]
			input := snake(f[3]) + ":" + snake(last(f[1])) + f[2]
			if slices.Contains(marks, "@In") {
				words = append(words, input)
			}
			if slices.Contains(marks, "@Out") {
				words = append(words, "="+input)
			}
		}
	}
	if m[2] == "Follow" && !slices.Contains(words, "follow:string") {
		words = append(words, "follow:string")
	}
	if len(variants) == 0 {
		return []string{strings.Join(append([]string{"method", service, snake(m[1])}, words...), " ")}
	}
	var out []string
	for _, variant := range variants {
		for _, line := range method(head, variant, words) {
			f := strings.Fields(line)
			f[2] = snake(m[1])
			out = append(out, strings.Join(f, " "))
		}
	}
	return out
}

// annotations cuts the annotations off that a member begins with.
func annotations(rest string) ([]string, string) {
	var marks []string
	for mark := annotation.FindString(rest); mark != ""; mark = annotation.FindString(rest) {
		marks, rest = append(marks, mark), strings.TrimSpace(rest[len(mark):])
	}
	return marks, rest
}

// required returns the mandatory inputs of a description: !a.b, or !a.b|a.c for
// alternatives.
func required(source string) []string {
	var out []string
	for statement := range strings.SplitSeq(source, ";") {
		statement = strings.TrimSpace(statement)
		if i := strings.LastIndexByte(statement, '{'); i >= 0 {
			statement = strings.TrimSpace(statement[i+1:])
		}
		if !strings.HasPrefix(statement, "mandatory(") && !strings.HasPrefix(statement, "or(") || strings.Contains(statement, "optional(") {
			continue
		}
		var paths []string
		for part := range strings.SplitSeq(statement, "mandatory(") {
			var path []string
			for _, c := range call.FindAllStringSubmatch(part, -1) {
				path = append(path, snake(c[1]))
			}
			if len(path) > 0 {
				paths = append(paths, strings.Join(path, "."))
			}
		}
		if len(paths) > 0 {
			out = append(out, "!"+strings.Join(paths, "|"))
		}
	}
	return out
}

// closing returns the index behind the brace that closes the first one.
func closing(text string) int {
	depth := 0
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// snake converts a name of Java to one of the API.
func snake(name string) string {
	var b strings.Builder
	for i, r := range strings.TrimPrefix(last(name), "_") {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
