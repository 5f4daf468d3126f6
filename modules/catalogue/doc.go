// Package catalogue holds Nova's modules as data: groups of modules, a file
// each, the sets that they are composed to, and trees of Kustomize for what has
// no public chart.
//
// Composing is all that the code here does. It refuses to know clusters: what
// differs between them stands in expressions and templates over facts, which
// package modules evaluates.
package catalogue
