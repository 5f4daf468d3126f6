package plan

// Upkeep is how much of a control plane is kept in sync with its spec, beside the
// action. Each value includes the ones before it.
type Upkeep int

const (
	// KeepNothing keeps nothing: another management cluster acts, or the control
	// plane is being deleted.
	KeepNothing Upkeep = iota
	// KeepOwners keeps the owners of objects that others created.
	KeepOwners
	// KeepCertificates keeps the certificate authorities.
	KeepCertificates
	// KeepKubeconfig keeps the kubeconfig.
	KeepKubeconfig
	// KeepAll also keeps machines and the objects of the workload cluster.
	KeepAll
)

// Requirements are the facts that a control plane depends on before its machines
// do. The zero value blocks nothing.
type Requirements struct {
	// Fenced is why another management cluster acts, for users; empty if none
	// does.
	Fenced string
	// Deleting is true if the control plane is being deleted, and Workers are
	// the objects that are or create workers.
	Deleting bool
	Workers  []string
	// InfrastructureMissing is true while the cluster's infrastructure is not
	// provisioned and the control plane is not initialized.
	InfrastructureMissing bool
	// FormerSecret is a Secret of a former cluster with the same name that is
	// still to be deleted; empty if there is none.
	FormerSecret string
	// ExternalSecret is a Secret that external etcd needs and that does not exist;
	// empty if there is none.
	ExternalSecret string
	// EndpointMissing is true while the Cluster has no endpoint.
	EndpointMissing bool
	// RestoresUnknown is true if the restores of etcd could not be read.
	RestoresUnknown bool
}

// requirements decides whatever does not depend on machines. It returns nil if
// machines may be changed.
func requirements(p *problem) *Decision {
	switch needs := p.Requirements; {
	case needs.Fenced != "":
		return &Decision{Action: Nothing, Reason: needs.Fenced}
	case needs.Deleting:
		return deletion(p)
	case needs.InfrastructureMissing:
		return holdAt(KeepOwners, "Waiting for the cluster's infrastructure to be provisioned")
	case needs.FormerSecret != "":
		return holdAt(KeepOwners, "Waiting for Secret %s of a former cluster to be deleted with it", needs.FormerSecret)
	case needs.ExternalSecret != "":
		// Without it the controller would create its own CA, which that etcd does
		// not trust.
		return holdAt(KeepOwners, "Waiting for Secret %s, which external etcd needs", needs.ExternalSecret)
	case needs.EndpointMissing:
		return holdAt(KeepCertificates, "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster")
	case needs.RestoresUnknown:
		// The API server may work, so the control plane is not reported as
		// unavailable.
		d := wait("NovaEtcdRestores cannot be read, and one of them may be in progress")
		d.Upkeep = KeepKubeconfig
		return d
	}
	return nil
}

// deletion deletes the control plane: all its machines at once, after the user
// has deleted the workers, which need the API server for their own deletion. It
// does not depend on etcd, which may have failed or never have been initialized.
func deletion(p *problem) *Decision {
	if workers := p.Requirements.Workers; len(workers) > 0 {
		return holdAt(KeepNothing, "Waiting for workers to be deleted first: %s", Shorten(workers))
	}
	if len(p.Machines) == 0 {
		d := holdAt(KeepNothing, "Deletion completed")
		d.Action = EndDeletion
		return d
	}
	var names []string
	for _, m := range p.Machines {
		names = append(names, m.Name)
	}
	d := holdAt(KeepNothing, "Waiting for machines to be deleted: %s", Shorten(names))
	d.Action, d.Machines = DeleteAll, names
	return d
}

// holdAt returns a decision to wait, which allows some upkeep and nothing else.
func holdAt(keep Upkeep, format string, args ...any) *Decision {
	d := wait(format, args...)
	d.Upkeep, d.Hold = keep, d.Reason
	return d
}
