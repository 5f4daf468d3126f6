// Package fleet runs nova-fleet behind a login proxy and reads its page. With
// NOVA_SUITES=full headless Chromium shows the page, on a wide and a narrow
// screen, light and dark. It cannot be imported.
package fleet
