//! Applies options to the create request.

use std::collections::{BTreeSet, HashMap};

use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, PortBinding};

use super::RunArgs;
use super::value::Gpus;

impl RunArgs {
    /// Applies the options that are not in `host`, with which the caller builds the request.
    pub(in crate::backend::docker) fn apply(&self, body: &mut ContainerCreateBody) {
        body.hostname.clone_from(&self.hostname);
        let exposed: BTreeSet<_> = self.ports.iter().map(|port| port.inside.clone()).collect();
        body.exposed_ports = list(exposed.into_iter());
        let labels = body.labels.get_or_insert_default();
        labels.extend(self.labels.clone());
        self.apply_to_host(body.host_config.get_or_insert_default());
    }

    fn apply_to_host(&self, host: &mut HostConfig) {
        let all = |right: &String| right == "ALL";
        if self.cap_add.iter().any(all) {
            // Podman refuses to drop and add all capabilities at once.
            host.cap_add = Some(vec!["ALL".to_owned()]);
            host.cap_drop = list(self.cap_drop.iter().filter(|right| !all(right)).cloned());
        } else {
            let rights = host.cap_add.get_or_insert_default();
            rights.retain(|right| !self.cap_drop.contains(right));
            for right in &self.cap_add {
                if !rights.contains(right) {
                    rights.push(right.clone());
                }
            }
        }
        host.security_opt.get_or_insert_default().extend(self.security.clone());
        host.tmpfs.get_or_insert_default().extend(self.tmpfs.clone());
        if let Some(network) = &self.network {
            host.network_mode = Some(network.clone());
        }
        host.device_requests = self.gpus.as_ref().map(|gpus| vec![device_request(gpus)]);
        host.port_bindings = (!self.ports.is_empty()).then(|| self.port_bindings());
        host.sysctls = (!self.sysctls.is_empty()).then(|| self.sysctls.clone().into_iter().collect());
    }

    fn port_bindings(&self) -> HashMap<String, Option<Vec<PortBinding>>> {
        let mut bindings = HashMap::<_, Option<Vec<_>>>::new();
        for port in &self.ports {
            bindings.entry(port.inside.clone()).or_default().get_or_insert_default().push(PortBinding {
                host_ip: port.address.map(|address| address.to_string()),
                host_port: port.outside.map(|port| port.to_string()),
            });
        }
        bindings
    }
}

fn device_request(gpus: &Gpus) -> DeviceRequest {
    let (count, device_ids) = match gpus {
        // The API's value for all GPUs.
        Gpus::All => (Some(-1), None),
        Gpus::Count(count) => (Some(i64::from(*count)), None),
        Gpus::Devices(ids) => (None, Some(ids.clone())),
    };
    let capabilities = Some(vec![vec!["gpu".to_owned()]]);
    DeviceRequest { count, device_ids, capabilities, ..DeviceRequest::default() }
}

/// The items, or `None` for an empty list, which leaves the field out of the request.
fn list<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then_some(items)
}
