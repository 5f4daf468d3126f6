// Command novabed starts and stops test environments: users run quickstart, and a test environment
// consists of processes such as run and vcenter.
package main
