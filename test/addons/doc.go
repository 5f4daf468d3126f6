// Package addons knows the modules of the catalogue whose programs are built from Go modules: which
// images they need, and where the chart is that is part of the same Go module.
//
// It has no chart and no manifest of others: they are read from the module cache.
package addons
