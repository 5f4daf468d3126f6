// Package sitecheck reads what a real hypervisor is like and compares it with
// what this project needs and assumes.
//
// It sends requests that read, and no others: nothing is created, changed or
// deleted, so it can run against a hypervisor in use. A Report has one Finding for
// each check. VSphere checks a vCenter, and ZVirt an engine of oVirt or zVirt; a
// function of the same form belongs here for each further hypervisor.
package sitecheck
