// Package redact removes credentials from text that a guest or a program wrote,
// before people see it.
package redact
