package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	// tokenHeader is the header with the token of a GitLab.
	tokenHeader = "PRIVATE-TOKEN"
	// maxRedirects is the number of redirects that Go follows by default.
	maxRedirects = 10
)

// upload copies the files of clusterctl's repository to generic packages of a
// GitLab project. A file of a version that is published already must not differ.
func upload(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "The folder with the repository: PROVIDER/VERSION/FILE.")
	version := flags.String("version", "", "The version to upload.")
	ca := flags.String("ca", "", "A file with the CA of the server.")
	target, err := argument(flags, args, "URL, such as https://gitlab.example.com/api/v4/projects/1/packages/generic")
	if err != nil {
		return err
	}
	to, err := url.Parse(strings.TrimSuffix(target, "/"))
	if err != nil || to.Scheme != "https" || !strings.HasPrefix(to.Host, "gitlab.") || !strings.HasSuffix(to.Path, "/packages/generic") {
		return fmt.Errorf("%s is no URL that clusterctl can read: it has the form https://gitlab.HOST/api/v4/projects/PROJECT/packages/generic", target)
	}
	c, err := newClient(*ca)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(*dir, "*", *version, "*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("version %q is not in %s", *version, *dir)
	}
	for _, file := range files {
		name, err := filepath.Rel(*dir, file)
		if err != nil {
			return fmt.Errorf("naming %s: %w", file, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading file: %w", err)
		}
		if err := explain(to.Host, c.put(ctx, to.JoinPath(filepath.ToSlash(name)).String(), data)); err != nil {
			return fmt.Errorf("uploading %s: %w", name, err)
		}
		fmt.Println(name)
	}
	return nil
}

// put uploads a file, unless the server has it.
func (c client) put(ctx context.Context, target string, data []byte) error {
	status, present, err := c.do(ctx, http.MethodGet, target, nil)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK && bytes.Equal(present, data):
		return nil
	case status == http.StatusOK:
		return fmt.Errorf("the server has another content for it: a published version is never changed: %w", fs.ErrExist)
	case status != http.StatusNotFound:
		return refused(status)
	}
	if status, _, err = c.do(ctx, http.MethodPut, target, data); err == nil && status != http.StatusCreated {
		return refused(status)
	}
	return err
}

// refused describes the response of a server that did not accept a request.
func refused(status int) error {
	return fmt.Errorf("the server responded with %d %s: set GITLAB_TOKEN to a token with the scope api", status, http.StatusText(status))
}

// withholdToken removes the token from a redirect to another server, such as the
// object storage of a GitLab. Go does that only for headers that it knows.
func withholdToken(request *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if first := via[0].URL; request.URL.Host != first.Host || request.URL.Scheme != first.Scheme {
		request.Header.Del(tokenHeader)
	}
	return nil
}

func (c client) do(ctx context.Context, method, target string, data []byte) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	if token := os.Getenv("GITLAB_TOKEN"); token != "" {
		request.Header.Set(tokenHeader, token)
	}
	response, err := (&http.Client{Transport: c.transport, CheckRedirect: withholdToken}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
