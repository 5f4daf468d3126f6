package hostile

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A file of a tenant user's node", Ordered, ContinueOnFailure, func() {
	const namespace = "red-files"
	var (
		user client.Client
		kept keepsake
	)

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		kept = keep(ctx, "not-for-files")
		bareCluster(ctx, user, namespace, "red", "192.0.2.1:6443")
	})

	for kind, field := range map[string]string{"Secret": "secret", "ConfigMap": "configMap"} {
		It("holds no "+kind+" of another namespace", func(ctx context.Context) {
			kept.missed(ctx, booting(ctx, user, namespace, "red", strings.ToLower(kind), []any{map[string]any{
				"path": "/etc/stolen", "contentFrom": map[string]any{field: map[string]any{"name": kept.name, "key": "key", "namespace": blue.Namespace}},
			}}))
		})

		It("holds no "+kind+" of another namespace by a path", func(ctx context.Context) {
			path := "../../" + blue.Namespace + "/" + strings.ToLower(kind) + "s/" + kept.name
			name := strings.ToLower(kind) + "-path"
			config := bootConfig(namespace, "red", name, []any{map[string]any{
				"path": "/etc/stolen", "contentFrom": map[string]any{field: map[string]any{"name": path, "key": "key"}},
			}})
			if err := user.Create(ctx, config); apierrors.IsInvalid(err) {
				return
			}
			bootMachine(ctx, user, namespace, "red", name)
			Eventually(conditionsOf(config)).WithContext(ctx).Should(ContainSubstring("DataSecretAvailable=False"))
		})
	}
})
