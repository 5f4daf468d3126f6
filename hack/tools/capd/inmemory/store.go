package main

import (
	"sync"

	inmemoryclient "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/client"
	inmemorymanager "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/manager"
	inmemorygroup "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/resourcegroup"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is Cluster API's store of pretended clusters, with what real API
// servers and members of etcd do beyond it. Watches of names tell of all objects of
// a kind, which does no harm.
type store struct {
	inmemorymanager.Manager
	secrets client.Reader
	mux     *inmemoryserver.WorkloadClustersMux
	// members is held while a member of etcd joins.
	members sync.Mutex
}

// GetResourceGroup returns the objects of one cluster.
func (s *store) GetResourceGroup(name string) inmemorygroup.ResourceGroup {
	return group{ResourceGroup: s.Manager.GetResourceGroup(name), store: s, name: name}
}

type group struct {
	inmemorygroup.ResourceGroup
	store *store
	name  string
}

// GetClient returns what reads and writes the objects.
func (g group) GetClient() inmemoryclient.Client {
	return groupClient{
		Client: g.ResourceGroup.GetClient(), group: g.name, secrets: g.store.secrets, members: &g.store.members,
		servers: func() *inmemoryserver.WorkloadClustersMux { return g.store.mux },
	}
}

type groupClient struct {
	inmemoryclient.Client
	group   string
	secrets client.Reader
	members *sync.Mutex
	// servers are made with the store, and so are not there before it.
	servers func() *inmemoryserver.WorkloadClustersMux
}
