package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

const (
	// refreshAnnotation is the time at which the data is renewed unless it was used. It is stored on
	// the Secret, because a move drops the status.
	refreshAnnotation = "nova.bootstrap.cluster.x-k8s.io/refresh-after"

	dataKey   = "value"
	formatKey = "format"
)

// dataStore keeps bootstrap data in Secrets.
type dataStore struct{ client client.Client }

// findSecret reads the current bootstrap data. The Secret has the name of the NovaConfig; a Secret of
// another owner is left alone.
func (r *dataStore) findSecret(ctx context.Context, s *scope) error {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(s.config), secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading bootstrap data: %w", err)
	}
	if _, data := secret.Annotations[bootstrapv1.ModeAnnotation]; data {
		if err := pki.Adopt(ctx, r.client, secret, s.cluster.Name, ownedBy(s.config)); err != nil {
			return err
		}
	}
	if !metav1.IsControlledBy(secret, s.config) {
		return fmt.Errorf("writing bootstrap data: Secret %s exists and does not belong to this NovaConfig; delete it, or use another name", secret.Name)
	}
	s.secret = secret
	return nil
}

func ownedBy(config *bootstrapv1.NovaConfig) metav1.OwnerReference {
	return *metav1.NewControllerRef(config, bootstrapv1.GroupVersion.WithKind("NovaConfig"))
}

// store writes the data. It creates the Secret only if it does not exist, and replaces it only if it
// has not changed since it was read.
func (r *dataStore) store(ctx context.Context, s *scope) error {
	wanted := newSecret(s, time.Now())
	if s.secret == nil {
		if err := r.client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating bootstrap data: %w", err)
		}
		s.secret = wanted
		return nil
	}
	renewed := s.secret.DeepCopy()
	renewed.Data = wanted.Data
	maps.Copy(renewed.Annotations, wanted.Annotations)
	if err := r.client.Update(ctx, renewed); err != nil {
		return fmt.Errorf("refreshing bootstrap data: %w", err)
	}
	s.secret, s.refreshed = renewed, true
	return nil
}

func newSecret(s *scope, now time.Time) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.config.Namespace,
			Name:            s.config.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			Annotations:     map[string]string{bootstrapv1.ModeAnnotation: string(s.mode)},
			OwnerReferences: []metav1.OwnerReference{ownedBy(s.config)},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{dataKey: s.data, formatKey: []byte(s.config.Spec.GetFormat())},
	}
	if s.join != nil {
		secret.Annotations[joining.JoinerAnnotation] = string(s.joiner())
	}
	if s.token != "" {
		secret.Annotations[tokenAnnotation] = s.token
	}
	if expires := s.expires(now); !expires.IsZero() {
		secret.Annotations[refreshAnnotation] = now.Add(expires.Sub(now) / 2).UTC().Format(time.RFC3339)
	}
	return secret
}

// expires returns when the first credential in the data expires; zero if none does.
func (s *scope) expires(now time.Time) time.Time {
	first := s.restoreExpires
	if s.join != nil || s.vault != nil {
		if own := now.Add(s.lifetime); first.IsZero() || own.Before(first) {
			first = own
		}
	}
	return first
}

// usedNote replaces the data once the machine has joined.
const usedNote = "The machine has joined with this bootstrap data, so it was removed.\n"

// removeData removes the data of a machine that has joined from its Secret. The Secret stays: the
// Machine references it, and its annotations record how the machine became a node.
func (r *dataStore) removeData(ctx context.Context, s *scope) error {
	if s.secret == nil || string(s.secret.Data[dataKey]) == usedNote {
		return nil
	}
	used := s.secret.DeepCopy()
	used.Data[dataKey] = []byte(usedNote)
	delete(used.Annotations, refreshAnnotation)
	if err := r.client.Update(ctx, used); err != nil {
		return fmt.Errorf("removing used bootstrap data: %w", err)
	}
	s.secret = used
	return nil
}
