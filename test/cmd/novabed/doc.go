// Command novabed starts and ends test beds: quickstart is the way for people,
// run and vcenter are the programs a bed is made of.
package main
