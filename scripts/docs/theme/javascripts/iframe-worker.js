// The site's search runs in a worker, which browsers refuse to pages opened from a file. There the
// script of the worker runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      const address = new URL(script, location.href).href;
      this.inside.document.open();
      this.inside.document.write(`<!DOCTYPE html><body><script src="${address}"></script></body>`);
      this.inside.postMessage = (data) => this.receive(data);
      this.inside.importScripts = (...scripts) => this.load(scripts);
      this.inside.document.close();
    }

    // the worker's code calls it as its own postMessage
    receive(data) {
      setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
    }

    async load(scripts) {
      for (const source of scripts) {
        await new Promise((loaded) => {
          const element = this.inside.document.createElement("script");
          element.src = source;
          element.onload = loaded;
          this.inside.document.body.appendChild(element);
        });
      }
    }

    postMessage(data) {
      const send = () => this.inside.dispatchEvent(new MessageEvent("message", { data }));
      if (this.inside.document.readyState === "complete") send();
      else this.inside.addEventListener("load", send);
    }

    terminate() {}
  };
}
