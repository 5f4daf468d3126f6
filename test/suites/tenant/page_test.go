package tenant

import (
	"context"
	"io"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// get returns the status and the text of a page. A host that is set replaces that of the URL.
func get(ctx context.Context, url, host string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}

// As "make quickstart-page" serves it.
var _ = It("serves the fleet page of the test environment, and only under its own address", func(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- b.ServeFleet(ctx, "127.0.0.1:0", func(url string) { served <- url }) }()
	var url string
	Eventually(served).WithTimeout(bootTimeout).Should(Receive(&url))
	Eventually(func() string {
		_, text := get(ctx, url, "")
		return text
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(ContainSubstring("There is no Cluster."), "other specs delete theirs")
	status, text := get(ctx, url, "example.com")
	Expect(status).To(Equal(http.StatusMisdirectedRequest))
	Expect(text).NotTo(ContainSubstring("Cluster"))
	stop()
	Eventually(ended).WithTimeout(reportTimeout).Should(Receive(BeNil()))
})
