package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// largeLines is the size of a package from which calls between its files
	// are counted.
	largeLines = 1500
	// deepestLines is the size that no package should exceed.
	deepestLines = 3000
	// maxFiles is the number of files in which a type may have methods.
	maxFiles = 6
)

// measure returns the figures of each package below the folders.
func measure(roots []string) (map[string]figures, error) {
	measured := map[string]figures{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || !entry.IsDir():
				return err
			case entry.Name() == "testdata":
				return filepath.SkipDir
			}
			files, lines, err := read(path)
			if err == nil && len(files) > 0 {
				measured[path] = figuresOf(files, lines)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", root, err)
		}
	}
	return measured, nil
}

// read returns the files of a package, without tests and generated files, and
// their lines.
func read(folder string) (files map[string]*ast.File, lines int, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, 0, fmt.Errorf("listing files: %w", err)
	}
	set := token.NewFileSet()
	files = map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, 0, fmt.Errorf("parsing: %w", err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		files[filepath.Base(name)] = file
		lines += set.File(file.Pos()).LineCount()
	}
	return files, lines, nil
}

func figuresOf(files map[string]*ast.File, lines int) (f figures) {
	d := definitionsOf(files)
	if lines > largeLines {
		f.calls = backwardCalls(d.calls(files))
	}
	if lines > deepestLines {
		f.deepest = 1
	}
	for _, name := range slices.Sorted(maps.Keys(d.types)) {
		if in := len(d.types[name]); in > maxFiles {
			f.types = append(f.types, fmt.Sprintf("%s has methods in %d files", name, in))
		}
	}
	f.backward, f.scattered = len(f.calls), len(f.types)
	return f
}

// definitions are the functions and methods of a package.
type definitions struct {
	// functions has the file of each function.
	functions map[string]string
	// methods has the file of each method, by its name. If several types have
	// a method of this name, the file is empty.
	methods map[string]string
	// types has the files with methods of each type.
	types map[string]map[string]bool
}

func definitionsOf(files map[string]*ast.File) definitions {
	d := definitions{map[string]string{}, map[string]string{}, map[string]map[string]bool{}}
	for name, file := range files {
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if f.Recv == nil {
				d.functions[f.Name.Name] = name
				continue
			}
			receiver := receiverOf(f.Recv.List[0].Type)
			if d.types[receiver] == nil {
				d.types[receiver] = map[string]bool{}
			}
			d.types[receiver][name] = true
			if _, several := d.methods[f.Name.Name]; several {
				d.methods[f.Name.Name] = ""
			} else {
				d.methods[f.Name.Name] = name
			}
		}
	}
	return d
}

func receiverOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiverOf(x.X)
	case *ast.IndexExpr:
		return receiverOf(x.X)
	case *ast.IndexListExpr:
		return receiverOf(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// calls returns the files whose functions or methods each file calls.
func (d definitions) calls(files map[string]*ast.File) map[string]map[string]bool {
	calls := map[string]map[string]bool{}
	for name, file := range files {
		calls[name] = map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			to := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				to = d.functions[f.Name]
			case *ast.SelectorExpr:
				to = d.methods[f.Sel.Name]
			}
			if to != "" && to != name {
				calls[name][to] = true
			}
			return true
		})
	}
	return calls
}

// backwardCalls returns the pairs of files that call each other, directly or
// through other files.
func backwardCalls(calls map[string]map[string]bool) (pairs []string) {
	for _, from := range slices.Sorted(maps.Keys(calls)) {
		for _, to := range slices.Sorted(maps.Keys(calls[from])) {
			if reaches(calls, to, from, map[string]bool{}) {
				pairs = append(pairs, from+" > "+to)
			}
		}
	}
	return pairs
}

func reaches(calls map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for next := range calls[from] {
		if !seen[next] && reaches(calls, next, to, seen) {
			return true
		}
	}
	return false
}
