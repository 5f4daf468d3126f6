// Package agenttest has a machine for tests of the host agent: a folder as its
// root, commands that record their calls, and a clock that does not wait.
package agenttest
