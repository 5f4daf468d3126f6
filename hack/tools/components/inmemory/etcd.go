package main

import (
	"context"
	"crypto/rsa"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podPrefix is the prefix of the name of an etcd member's pod, before the name
// of the member.
const podPrefix = "etcd-"

// fromEtcd distinguishes requests of the simulated etcd from requests of the
// API server.
func fromEtcd(ctx context.Context) bool {
	_, is := metadata.FromIncomingContext(ctx)
	return is
}

// memberNames gives pods the names of their members. The simulated etcd
// searches the pod of the requested member under the name of the member, does
// not find it, and therefore does not report which member responds.
func memberNames(list client.ObjectList) {
	if pods, are := list.(*corev1.PodList); are {
		for i := range pods.Items {
			pods.Items[i].Name = strings.TrimPrefix(pods.Items[i].Name, podPrefix)
		}
	}
}

// Patch changes an object. Objects that the simulated etcd changes are pods.
func (c groupClient) Patch(ctx context.Context, object client.Object, patch client.Patch) error {
	if _, is := object.(*corev1.Pod); is && fromEtcd(ctx) {
		object.SetName(podPrefix + object.GetName())
	}
	return c.Client.Patch(ctx, object, patch)
}

// Create creates an object. With the pod of an etcd member it creates a
// certificate for the name of its node: kubeadm does the same, and the
// simulated etcd does not.
func (c groupClient) Create(ctx context.Context, object client.Object) error {
	pod, is := object.(*corev1.Pod)
	if !is || pod.Labels["component"] != "etcd" {
		return c.Client.Create(ctx, object)
	}
	if err := c.certify(ctx, strings.TrimPrefix(pod.Name, podPrefix)); err != nil {
		return fmt.Errorf("making certificate of %s: %w", pod.Name, err)
	}
	c.members.Lock()
	defer c.members.Unlock()
	if err := c.join(ctx, pod); err != nil {
		return fmt.Errorf("joining %s to its cluster: %w", pod.Name, err)
	}
	return c.Client.Create(ctx, object)
}

// join adds a new member to the existing cluster. Members that start at the
// same time do not see each other: each would create its own cluster, and none
// of them would ever respond. It runs with c.members locked.
func (c groupClient) join(ctx context.Context, pod *corev1.Pod) error {
	there := &corev1.PodList{}
	if err := c.Client.List(ctx, there, client.InNamespace(pod.Namespace), client.MatchingLabels(pod.Labels)); err != nil {
		return err
	}
	for i := range there.Items {
		known := there.Items[i].Annotations
		if _, removed := known[cloudv1.EtcdMemberRemoved]; removed {
			continue
		}
		pod.Annotations[cloudv1.EtcdClusterIDAnnotationName] = known[cloudv1.EtcdClusterIDAnnotationName]
		if _, leads := known[cloudv1.EtcdLeaderFromAnnotationName]; leads {
			delete(pod.Annotations, cloudv1.EtcdLeaderFromAnnotationName)
		}
	}
	return nil
}

// certify lets the servers of the group respond as etcd under a name.
func (c groupClient) certify(ctx context.Context, name string) error {
	// A group has the name of its cluster.
	namespace, cluster, _ := strings.Cut(c.group, "/")
	authority, err := secret.Get(ctx, c.secrets, client.ObjectKey{Namespace: namespace, Name: cluster}, secret.EtcdCA)
	if err != nil {
		return err
	}
	cert, err := certs.DecodeCertPEM(authority.Data[secret.TLSCrtDataName])
	if err != nil {
		return err
	}
	signer, err := certs.DecodePrivateKeyPEM(authority.Data[secret.TLSKeyDataName])
	if err != nil {
		return err
	}
	key, is := signer.(*rsa.PrivateKey)
	if !is {
		return fmt.Errorf("key of %s is not RSA", authority.Name)
	}
	return c.servers().AddEtcdMember(c.group, name, cert, key)
}
