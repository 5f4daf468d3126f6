package manager

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// filterProvider creates the filter that authenticates and authorizes requests
// to the diagnostics endpoint.
type filterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error)

// forAudience makes the filter accept only tokens with an audience. The API
// server rejects such a token, so a program that obtains it cannot use the
// permissions of the scraper's account.
func forAudience(audience string, provider filterProvider) filterProvider {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		filter, err := provider(config, client)
		if err != nil {
			return nil, err
		}
		return func(log logr.Logger, next http.Handler) (http.Handler, error) {
			guarded, err := filter(log, next)
			if err != nil {
				return nil, err
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx := authenticator.WithAudiences(r.Context(), authenticator.Audiences{audience})
				guarded.ServeHTTP(w, r.WithContext(ctx))
			}), nil
		}, nil
	}
}
