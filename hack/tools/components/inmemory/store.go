package main

import (
	"sync"

	inmemoryclient "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/client"
	inmemorymanager "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/manager"
	inmemorygroup "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime/resourcegroup"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is Cluster API's store of simulated clusters, with additional behavior
// of real API servers and etcd members. Watches by name receive all objects of
// a kind, which has no effect on the clients.
type store struct {
	inmemorymanager.Manager
	secrets client.Reader
	mux     *inmemoryserver.WorkloadClustersMux
	// members is locked while an etcd member joins.
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

// GetClient returns the client that reads and writes the objects.
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
	// servers are created with the store, so they do not exist before it.
	servers func() *inmemoryserver.WorkloadClustersMux
}
