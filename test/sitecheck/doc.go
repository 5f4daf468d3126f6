// Package sitecheck reads the state of a real hypervisor and compares it with the requirements and
// assumptions of this project.
//
// It sends read requests only: nothing is created, changed or deleted, so it can run against a
// hypervisor in use. A Report has one Finding for each check. VSphere checks a vCenter, and ZVirt
// an engine of oVirt or zVirt; a function of the same form belongs here for each further
// hypervisor.
package sitecheck
