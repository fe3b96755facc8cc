// A page that was opened from disk may not start workers. This one runs its script in a hidden frame instead,
// so that search works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        for (const data of this.waiting) this.deliver(data);
        this.waiting = null;
      };
      inside.document.body.append(script);
    }

    postMessage(data) {
      this.waiting ? this.waiting.push(data) : this.deliver(data);
    }

    deliver(data) {
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
}
