// Package demo tests make demo: with NOVA_SUITES=full it runs the command without any capability of
// root, types the commands that the demo prints, and ends it as a person would. A short run has no
// spec: test/bed tests the parts.
package demo
