// Package initlock makes sure that exactly one control plane machine of a
// cluster runs kubeadm init, ever.
//
// The lock is the ConfigMap <cluster>-lock, owned by the Cluster, so that
// "clusterctl move" moves it too. It names the machine that initializes the
// cluster and records that the initialization is complete. A NovaControlPlane
// assigns the lock to one of its machines (Assign) and derives from it whether
// a machine initializes, joins or waits (OrderFor). With any other owner, the
// first machine that calls Acquire holds the lock.
//
// The package refuses to release a lock whose holder still exists, and the lock
// of an initialized cluster, even if only a joined machine proves the
// initialization. The lock is reset only after all control plane machines were
// deleted.
package initlock
