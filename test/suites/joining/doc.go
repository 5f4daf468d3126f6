// Package joining holds the suite that boots hosts to see how machines become
// nodes, and what is told of those that do not: credentials that are good for
// one machine and once, certificates of kubelets, control planes of other
// providers, and the reports of nodes that fail. The suite needs root and
// Linux, and fails saying so where they are missing.
package joining
