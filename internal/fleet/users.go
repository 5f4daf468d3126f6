package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// reviewTTL is how long answers of the API server about a user are used: a
	// user whose permission is removed sees clusters for this time at most.
	reviewTTL = 30 * time.Second
	// reviewTimeout limits a request to the API server about a token.
	reviewTimeout = 10 * time.Second
)

// users authenticates and authorizes users by requests to the API server.
type users struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// newUsers makes the clients of TokenReview and SubjectAccessReview.
func newUsers(config *rest.Config, client *http.Client) (*users, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making client for TokenReviews: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making client for SubjectAccessReviews: %w", err)
	}
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
	authenticate, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: authentication, TokenAccessReviewTimeout: reviewTimeout, WebhookRetryBackoff: retry, CacheTTL: reviewTTL,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("making authenticator: %w", err)
	}
	authorize, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: authorization, AllowCacheTTL: reviewTTL, DenyCacheTTL: reviewTTL, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("making authorizer: %w", err)
	}
	return &users{authenticator: authenticate, authorizer: authorize}, nil
}

// isOutage reports whether the API server did not review a token, so that nothing is known
// about the token.
func isOutage(err error) bool {
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return slices.ContainsFunc(all.Errors(), isOutage)
	}
	_, rejected := errors.AsType[*apierrors.StatusError](err)
	_, unreachable := errors.AsType[net.Error](err)
	return rejected || unreachable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// mayList reports whether a user may list the Clusters of a namespace, or of all
// namespaces if it is empty.
func (u *users) mayList(ctx context.Context, who user.Info, namespace string) (bool, error) {
	decision, _, err := u.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "list", Namespace: namespace, ResourceRequest: true,
		APIGroup: clusterv1.GroupVersion.Group, APIVersion: clusterv1.GroupVersion.Version, Resource: "clusters",
	})
	if err != nil {
		return false, fmt.Errorf("reviewing access to namespace %s: %w", namespace, err)
	}
	return decision == authorizer.DecisionAllow, nil
}
