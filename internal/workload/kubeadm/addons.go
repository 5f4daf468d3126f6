package kubeadm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/corefile-migration/migration"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// KubeProxyName is the name of kube-proxy's DaemonSet and ConfigMap.
	KubeProxyName = "kube-proxy"
	// CoreDNSName is the name of CoreDNS' Deployment and ConfigMap.
	CoreDNSName = "coredns"

	coreDNSVolume     = "config-volume"
	corefileKey       = "Corefile"
	corefileBackupKey = "Corefile-backup"
	defaultRegistry   = "registry.k8s.io"
	// kubeProxyKey holds kube-proxy's configuration in its ConfigMap.
	kubeProxyKey = "config.conf"
	// kubeProxyMark is an annotation of the ConfigMap, and of pods that read it
	// after its content changed.
	kubeProxyMark = "controlplane.cluster.x-k8s.io/nova-kube-proxy-configuration"
)

// coreDNSVersions are the versions of CoreDNS that kubeadm deploys, by minor
// version of Kubernetes. With a version that is not listed CoreDNS is not
// changed. A test compares them with the sources of kubeadm that hack/tools
// pins.
var coreDNSVersions = map[uint]string{
	31: "v1.11.3",
	32: "v1.11.3",
	33: "v1.12.0",
	34: "v1.12.1",
	35: "v1.13.1",
	36: "v1.14.2",
	37: "v1.14.6",
}

// addons updates kube-proxy and CoreDNS, which kubeadm deploys into the
// cluster.
type addons struct {
	client  client.Client
	want    Upgrade
	changed []string
}

// SyncAddons updates kube-proxy and CoreDNS. It returns its changes, for users.
func SyncAddons(ctx context.Context, c client.Client, want Upgrade) ([]string, error) {
	a := &addons{client: c, want: want}
	err := a.sync(ctx)
	return a.changed, err
}

// sync updates kube-proxy and CoreDNS. If one does not exist, the user manages
// it.
func (a *addons) sync(ctx context.Context) error {
	if !a.want.SkipKubeProxy {
		if err := a.kubeProxy(ctx); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("updating kube-proxy: %w", err)
		}
	}
	if a.want.SkipCoreDNS {
		return nil
	}
	if err := a.coreDNS(ctx); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating CoreDNS: %w", err)
	}
	return nil
}

// kubeProxy first writes kube-proxy's configuration together with an annotation
// of its hash. The pods then get the same annotation: after a crash in between
// they are still replaced.
func (a *addons) kubeProxy(ctx context.Context) error {
	set := &appsv1.DaemonSet{}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: KubeProxyName}, set); err != nil {
		return err
	}
	mark, err := a.configureKubeProxy(ctx)
	if err != nil {
		return err
	}
	container := containerNamed(set.Spec.Template.Spec.Containers, KubeProxyName)
	if container == nil {
		return nil
	}
	var changed []string
	was := set.DeepCopy()
	image := a.want.ImageRepository + "/" + KubeProxyName + ":" + imageTag(a.want.Version)
	if container.Image != image && !Newer(ImageVersion(container.Image), a.want.Version) {
		container.Image = image
		changed = append(changed, "kube-proxy to "+a.want.Version)
	}
	if set.Spec.Template.Annotations[kubeProxyMark] != mark {
		metav1.SetMetaDataAnnotation(&set.Spec.Template.ObjectMeta, kubeProxyMark, mark)
		changed = append(changed, "kube-proxy to its new configuration")
	}
	if len(changed) == 0 {
		return nil
	}
	if err := a.client.Patch(ctx, set, client.StrategicMergeFrom(was)); err != nil {
		return err
	}
	a.changed = append(a.changed, changed...)
	return nil
}

// configureKubeProxy writes kube-proxy's configuration and returns the hash
// that pods with this configuration are annotated with; empty if kubeadm's
// configuration is unchanged.
func (a *addons) configureKubeProxy(ctx context.Context) (mark string, err error) {
	config := &corev1.ConfigMap{}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: KubeProxyName}, config); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("reading its configuration: %w", err)
	}
	if config.Data[kubeProxyKey] == "" {
		return "", nil
	}
	want := map[string]any{}
	if err := yaml.Unmarshal(a.want.KubeProxy, &want); err != nil {
		return "", fmt.Errorf("reading KubeProxyConfiguration: %w", err)
	}
	stored := DocumentIn(config, kubeProxyKey)
	next, err := nextDocument(stored, want, nil)
	if err != nil || next == stored {
		return config.Annotations[kubeProxyMark], err
	}
	next.put(config, kubeProxyKey)
	if next.Content != stored.Content {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, kubeProxyMark, contentHash(next.Content))
	}
	if err := a.client.Update(ctx, config); err != nil {
		return "", fmt.Errorf("writing its configuration: %w", err)
	}
	return config.Annotations[kubeProxyMark], nil
}

// coreDNS updates CoreDNS as kubeadm does: first it migrates the configuration
// to the new version, while the pods read a copy of the old one. The next step
// follows from the stored objects, so a crash repeats no step.
func (a *addons) coreDNS(ctx context.Context) error {
	target, image, err := a.coreDNSImage()
	if err != nil || target == "" {
		return err
	}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: CoreDNSName}
	deployment := &appsv1.Deployment{}
	if err := a.client.Get(ctx, key, deployment); err != nil {
		return err
	}
	container := containerNamed(deployment.Spec.Template.Spec.Containers, CoreDNSName)
	if container == nil {
		return nil
	}
	current := ImageVersion(container.Image)
	if container.Image == image || current == "" || Newer(current, target) {
		return nil
	}
	if err := a.migrateCorefile(ctx, deployment, current, target); err != nil {
		return err
	}
	was := deployment.DeepCopy()
	container = containerNamed(deployment.Spec.Template.Spec.Containers, CoreDNSName)
	container.Image = image
	useCorefile(deployment, corefileKey)
	if err := a.client.Patch(ctx, deployment, client.StrategicMergeFrom(was)); err != nil {
		return err
	}
	a.changed = append(a.changed, "CoreDNS to "+target)
	return nil
}

// migrateCorefile stores a configuration for the target version, and lets the
// pods read the old one until they are replaced.
func (a *addons) migrateCorefile(ctx context.Context, deployment *appsv1.Deployment, current, target string) error {
	config := &corev1.ConfigMap{}
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(deployment), config); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	old := config.Data[corefileKey]
	onBackup := usesCorefile(deployment, corefileBackupKey)
	if onBackup {
		// The previous try completed this step.
		old = config.Data[corefileBackupKey]
	}
	migrated, err := migration.Migrate(strings.TrimPrefix(current, "v"), strings.TrimPrefix(target, "v"), old, false)
	if err != nil {
		return fmt.Errorf("migrating the Corefile from %s to %s: %w", current, target, err)
	}
	if migrated == config.Data[corefileKey] {
		return nil
	}
	if !onBackup {
		config.Data[corefileBackupKey] = old
		if err := a.client.Update(ctx, config); err != nil {
			return fmt.Errorf("keeping the old Corefile: %w", err)
		}
		was := deployment.DeepCopy()
		useCorefile(deployment, corefileBackupKey)
		if err := a.client.Patch(ctx, deployment, client.StrategicMergeFrom(was)); err != nil {
			return fmt.Errorf("configuring the old Corefile: %w", err)
		}
	}
	config.Data[corefileKey] = migrated
	if err := a.client.Update(ctx, config); err != nil {
		return fmt.Errorf("writing the new Corefile: %w", err)
	}
	return nil
}

// coreDNSImage returns the version and the image of CoreDNS, as kubeadm
// composes it. Both are empty if the version is unknown.
func (a *addons) coreDNSImage() (target, image string, err error) {
	stored := struct {
		DNS struct {
			ImageRepository string `json:"imageRepository"`
			ImageTag        string `json:"imageTag"`
		} `json:"dns"`
	}{}
	if err := yaml.Unmarshal(a.want.Configuration, &stored); err != nil {
		return "", "", fmt.Errorf("reading ClusterConfiguration: %w", err)
	}
	target = stored.DNS.ImageTag
	if target == "" {
		v, err := version.ParseSemantic(a.want.Version)
		if err != nil {
			return "", "", fmt.Errorf("reading version: %w", err)
		}
		if target = coreDNSVersions[v.Minor()]; target == "" {
			return "", "", nil
		}
	}
	repository := stored.DNS.ImageRepository
	if repository == "" {
		repository = a.want.ImageRepository
		if repository == defaultRegistry {
			repository += "/coredns"
		}
	}
	image = repository + "/" + CoreDNSName + ":" + target
	return ImageVersion(image), image, nil
}

// UnknownCoreDNS returns why CoreDNS is not updated for the desired version;
// empty if its version is known.
func UnknownCoreDNS(want Upgrade) string {
	a := &addons{want: want}
	target, _, err := a.coreDNSImage()
	if err != nil || target != "" || want.SkipCoreDNS {
		return ""
	}
	return fmt.Sprintf("CoreDNS is not updated: this version of the provider does not know the CoreDNS version of Kubernetes %s. "+
		"Update the provider, or set dns.imageTag by a patch of ClusterConfiguration", want.Version)
}

// contentHash returns a short hash of a document.
func contentHash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:4])
}

func containerNamed(containers []corev1.Container, name string) *corev1.Container {
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		return nil
	}
	return &containers[at]
}

// usesCorefile reports whether the pods read their configuration from a key.
func usesCorefile(deployment *appsv1.Deployment, key string) bool {
	for _, item := range corefileItems(deployment) {
		if item.Path == corefileKey && item.Key == key {
			return true
		}
	}
	return false
}

// useCorefile configures the key that the pods read their configuration from.
func useCorefile(deployment *appsv1.Deployment, key string) {
	items := corefileItems(deployment)
	for i := range items {
		if items[i].Path == corefileKey {
			items[i].Key = key
		}
	}
}

func corefileItems(deployment *appsv1.Deployment) []corev1.KeyToPath {
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.Name == coreDNSVolume && volume.ConfigMap != nil {
			return volume.ConfigMap.Items
		}
	}
	return nil
}
