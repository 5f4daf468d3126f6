// Package addons knows the modules of the catalogue whose programs are built from Go modules: which
// images they need, and which chart is served for them.
//
// The programs are those of their projects, at the version of the catalogue if it can be had as a Go
// module. Charts and CustomResourceDefinitions are read from the module cache: nothing of others is
// copied here. A chart that is in no Go module has a small one of this project in the folder charts. It
// reads the values that the catalogue sets, and passes the arguments that the public chart derives from
// them. That the public chart knows these values is checked by modules/catalogue, not here.
package addons
