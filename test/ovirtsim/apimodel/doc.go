// Command apimodel writes the file api.txt of the engine simulator: the types,
// enums, services and methods of the engine's REST API, as the work tree of
// https://github.com/oVirt/ovirt-engine-api-model describes them.
//
// Each line is one of
//
//	type NAME <PARENT FIELD:TYPE FIELD:TYPE[]@   @ for a link
//	enum NAME VALUE…
//	service NAME <PARENT PATH:SERVICE {}:SERVICE {} for an ID
//	method SERVICE NAME INPUT:TYPE =OUTPUT:TYPE !MANDATORY|ALTERNATIVE
//
// A method with variants has a line for each.
package main
