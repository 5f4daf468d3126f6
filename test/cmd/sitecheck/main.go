// Command sitecheck reads the settings of a real hypervisor, compares them with the
// requirements of this project, and prints a report. It changes nothing there. It exits with
// status 1 if a check failed.
//
// It refuses to take a password as an argument, where other users of the machine
// could read it: the password is in SITE_CHECK_PASSWORD.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/sitecheck"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sitecheck:", err)
		os.Exit(1)
	}
}

var errFailed = errors.New("a check failed")

// kinds are the hypervisors that can be checked, with the flags that only one of
// them has.
var kinds = map[string][]string{
	"vsphere": {"compute-cluster", "resource-pool", "folder", "datastore", "networks"},
	"zvirt":   {"cluster", "storage-domain", "vnic-profiles", "quota", "filter"},
}

func run(ctx context.Context, args []string) error {
	var t sitecheck.VSphereTarget
	var z sitecheck.ZVirtTarget
	var ca, networks, profiles string
	flags := flag.NewFlagSet("sitecheck", flag.ContinueOnError)
	kind := flags.String("kind", "vsphere", "Kind of the hypervisor: vsphere, or zvirt for oVirt and zVirt.")
	limit := flags.Duration("timeout", 5*time.Minute, "Time limit of all checks together.")
	flags.StringVar(&t.Server, "server", "", "Host or host:port of the vCenter or engine.")
	flags.StringVar(&t.Username, "username", os.Getenv("SITE_CHECK_USERNAME"), "User name. Defaults to SITE_CHECK_USERNAME.")
	flags.StringVar(&ca, "ca-bundle", "", "File with the CA certificates in PEM. If not set, the system's are used.")
	flags.StringVar(&t.Thumbprint, "thumbprint", "", "SHA-256 thumbprint of the only certificate that is accepted.")
	flags.StringVar(&t.Datacenter, "datacenter", "", "Datacenter. If not set, the only one.")
	flags.StringVar(&t.Template, "template", "", "Template.")
	flags.StringVar(&t.ComputeCluster, "compute-cluster", "", "vsphere: compute cluster.")
	flags.StringVar(&t.ResourcePool, "resource-pool", "", "vsphere: resource pool. If not set, the root of the compute cluster.")
	flags.StringVar(&t.Folder, "folder", "", "vsphere: VM folder. If not set, the datacenter's.")
	flags.StringVar(&t.Datastore, "datastore", "", "vsphere: datastore.")
	flags.StringVar(&networks, "networks", "", "vsphere: networks, separated by commas.")
	flags.StringVar(&z.Cluster, "cluster", "", "zvirt: cluster. If not set, the only one of the data center.")
	flags.StringVar(&z.StorageDomain, "storage-domain", "", "zvirt: storage domain.")
	flags.StringVar(&profiles, "vnic-profiles", "", "zvirt: vNIC profiles as network/profile, separated by commas.")
	flags.StringVar(&z.Quota, "quota", "", "zvirt: quota.")
	flags.BoolVar(&z.Filter, "filter", false, "zvirt: the user has no administrative role.")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	t.Password = os.Getenv("SITE_CHECK_PASSWORD")
	if t.Server == "" || t.Username == "" || t.Password == "" {
		return errors.New("set --server, SITE_CHECK_USERNAME and SITE_CHECK_PASSWORD")
	}
	if err := checkKind(flags, *kind); err != nil {
		return err
	}
	if ca != "" {
		bundle, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("reading CA bundle: %w", err)
		}
		t.CABundle = string(bundle)
	}
	t.Networks, z.VNICProfiles = list(networks), list(profiles)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	var report sitecheck.Report
	if *kind == "zvirt" {
		z.Server, z.Username, z.Password, z.CABundle, z.Thumbprint = t.Server, t.Username, t.Password, t.CABundle, t.Thumbprint
		z.Datacenter, z.Template = t.Datacenter, t.Template
		report = sitecheck.ZVirt(ctx, z)
	} else {
		report = sitecheck.VSphere(ctx, t)
	}
	if err := report.Write(os.Stdout); err != nil {
		return err
	}
	if report.Count(sitecheck.Fail) > 0 {
		return errFailed
	}
	return nil
}

// checkKind refuses an unknown kind, and flags of another kind.
func checkKind(flags *flag.FlagSet, kind string) (err error) {
	if _, known := kinds[kind]; !known {
		return fmt.Errorf("--kind %q is not known: vsphere and zvirt are", kind)
	}
	flags.Visit(func(f *flag.Flag) {
		for other, names := range kinds {
			if other != kind && slices.Contains(names, f.Name) {
				err = fmt.Errorf("--%s is for --kind=%s", f.Name, other)
			}
		}
	})
	return err
}

// list splits a list at its commas.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
