// Replaces the table each time that the server sends it. The server escapes all
// text in it.
"use strict";
const state = document.getElementById("state");
const source = new EventSource("events");
source.onmessage = (event) => {
  document.getElementById("clusters").innerHTML = event.data;
  state.textContent = "live";
};
source.onerror = () => {
  state.textContent = "connection lost, trying again";
};
