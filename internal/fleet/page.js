// Replaces the table each time that the server sends it. The server escapes all
// text in it.
"use strict";
const retryMilliseconds = 60000;
const state = document.getElementById("state");
const table = document.getElementById("clusters");

function connect() {
  const source = new EventSource("events");
  source.onmessage = (event) => {
    table.innerHTML = event.data;
    table.className = "";
    state.textContent = "live";
  };
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) {
      state.textContent = "connection lost, trying again";
      return;
    }
    // The browser does not connect again after an HTTP error, for instance when the
    // login has expired.
    table.className = "stale";
    state.textContent = "not updated since " + new Date().toLocaleTimeString() + ", load the page again";
    setTimeout(connect, retryMilliseconds);
  };
}
connect();
