// Command conditions writes the page of the conditions and reasons of the API.
//
//	go run ./hack/conditions ROOT > docs/reference/conditions.md
//
// It reads the constants of the API packages, which have the form of Cluster API: a
// block of constants declares a condition and its reasons, and its comment names
// the kinds and the condition:
//
//	// NovaConfig's DataSecretAvailable condition and corresponding reasons.
//
// Two other forms of the comment declare the reasons that conditions have in
// common, and the reasons of events:
//
//	// Failed requests to a hypervisor: reasons of HypervisorAvailable and Ready.
//	// InfrastructureCluster's events.
//
// InfrastructureCluster, InfrastructureMachine and InfrastructureMachineTemplate
// are these kinds of all infrastructure providers.
//
// The comment of a reason has its cause, and the next step of the user in a
// paragraph that begins with "Action:". A path such as docs/etcd.md#it-is-down
// becomes a link. The comment of a condition whose normal status is False contains
// "negative polarity", and the comment of a condition that does not exist normally
// contains "absent otherwise". If Ready or Available depends on a condition, its comment
// contains "Ready depends on it", or "Ready of the Machine depends on it".
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: conditions ROOT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conditions:", err)
		os.Exit(1)
	}
}

// write writes the page of the project in a folder.
func write(root string, out io.Writer) error {
	blocks, err := read(root)
	if err != nil {
		return err
	}
	page, err := render(root, blocks)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, page)
	return err
}
