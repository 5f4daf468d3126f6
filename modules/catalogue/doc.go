// Package catalogue contains Nova's modules as data: groups of modules, one per
// file, the sets composed from them, and Kustomize trees for components without
// a public chart.
//
// The code only composes sets. It does not depend on clusters: the differences
// between clusters are expressions and templates over facts, which package
// modules evaluates.
package catalogue
